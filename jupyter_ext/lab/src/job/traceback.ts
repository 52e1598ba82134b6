/** The message of a failed job taken apart: what is wrong, and the frames of its traceback, the user's own among them. Pure. */

/** One frame of a traceback. */
export interface Frame {
  /** Relative to the job's code where it is the user's own, else as Python names it. */
  readonly file: string;
  readonly line: number;
  /** The frame as Python prints it: its place, and the lines of source below. */
  readonly text: readonly string[];
  readonly own: boolean;
}

/** A message in parts. */
export interface Parts {
  /** The sentences before the log's lines. */
  readonly says: string;
  /** The last lines of the log, with the traceback in them and short paths; "" for none. */
  readonly log: string;
  /** The innermost frame in the user's own code, else the `train()` call that the sentences name; null where there is neither. */
  readonly own: Frame | null;
  /** What Python says below the last frame, such as "ValueError: …". */
  readonly error: string;
  readonly frames: number;
}

const FRAME = /^\s*File "(.+)", line (\d+)/;
/** The sentence about an error in a layer, which has no frame of the user's own; see `layer` in `edt_sdk/training/user/explanation.py`. */
const CALLED = /train\(\) call in ([^\n]+), line (\d+)/;
const LOG = /^(Last lines of [^\n]*|Traceback \(most recent call last\)):$/m;
/** Below the folder of a job's results, the code that came in with it. */
const CODE = '/_submitted_code/';
const PLACE = new RegExp(`"[^"\n]*${CODE}`, 'g');
/** Added to each job; see `HELPERS` in `edt_sdk/packing/sources.py`. */
const HELPERS = /^(edtcallback|elog|emetrics)\.py$/;

/** Take a message apart. */
export function partsOf(message: string): Parts {
  const at = message.search(LOG);
  const says = (at < 0 ? message : message.slice(0, at)).trim();
  const whole = at < 0 ? '' : message.slice(at);
  const frames: { file: string; line: number; text: string[]; own: boolean }[] = [];
  let error: string[] = [];
  let open = false;
  for (const line of whole.split('\n')) {
    const found = FRAME.exec(line);
    if (found !== null) {
      const [, path = '', number = '0'] = found;
      const code = path.indexOf(CODE);
      const file = code < 0 ? path : path.slice(code + CODE.length);
      frames.push({ file, line: Number(number), text: [line], own: code >= 0 && !HELPERS.test(file) });
      open = true;
      error = [];
    } else if (open && /^\s/.test(line)) {
      frames.at(-1)?.text.push(line);
    } else if (frames.length > 0) {
      open = false;
      error.push(line);
    }
  }
  const own = frames.filter(frame => frame.own).at(-1) ?? called(says);
  const log = whole.trim().replace(PLACE, '"');
  return { says, log, own, error: error.join('\n').trim(), frames: frames.length };
}

function called(says: string): Frame | null {
  const [, file = '', line = '0'] = CALLED.exec(says) ?? [];
  return file === '' ? null : { file, line: Number(line), text: [], own: true };
}

/** The line of source that a frame shows; "" where Python knew none. */
export function sourceOf(frame: Frame): string {
  return (frame.text[1] ?? '').trim();
}
