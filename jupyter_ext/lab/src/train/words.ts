/**
 * A command line's arguments from one line of text and back, by the shell's rules for blanks, quotes and backslashes.
 * Nothing is expanded: `$HOME` and `*` stay as they are.
 */

/** What the line cannot be: a quote that is not closed. */
export class UnclosedQuote extends Error {}

/** `--lr 0.1 --name "two words"` → four arguments. Throws UnclosedQuote. */
export function words(line: string): string[] {
  const found: string[] = [];
  let word: string | null = null;
  let quote = '';
  for (let at = 0; at < line.length; at++) {
    const letter = line.charAt(at);
    if (quote === "'") {
      if (letter === quote) {
        quote = '';
      } else {
        word += letter;
      }
    } else if (letter === '\\' && at + 1 < line.length && (quote === '' || '"\\'.includes(line.charAt(at + 1)))) {
      word = (word ?? '') + line.charAt(++at);
    } else if (quote === '"' && letter === quote) {
      quote = '';
    } else if (quote === '' && (letter === '"' || letter === "'")) {
      quote = letter;
      word = word ?? '';
    } else if (quote === '' && /\s/.test(letter)) {
      if (word !== null) {
        found.push(word);
      }
      word = null;
    } else {
      word = (word ?? '') + letter;
    }
  }
  if (quote !== '') {
    throw new UnclosedQuote(`A ${quote === '"' ? 'double' : 'single'} quote is not closed.`);
  }
  return word === null ? found : [...found, word];
}

/** The line that `words` takes apart into these arguments. */
export function line(args: readonly string[]): string {
  return args.map(arg => (/^[\w@%+=:,./-]+$/.test(arg) ? arg : `'${arg.replace(/'/g, "'\\''")}'`)).join(' ');
}
