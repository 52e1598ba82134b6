/** A job in words, as Python's cards have them: numbers with their units, times with how long ago. Pure. */
import { LOOKS } from './looks';
import { type IClusterJob, type IJobView, isFinal } from './views';

/** Letters of a sentence that is read aloud; what is longer is looked up. */
const SAID = 159;
/** Seconds up to which a computed time is given in seconds, and in minutes; as in `core/reason.py`. */
const [NEAR, FAR] = [120, 7200];

/** `1 slot`, `3 slots`, for a whole number. */
export function count(n: number, thing: string): string {
  return `${grouped(n)} ${thing}${n === 1 ? '' : 's'}`;
}

/** `12,345`: a comma every three digits, as in the log. */
export function grouped(n: number): string {
  return Math.round(n).toLocaleString('en');
}

/** Three significant figures; what is no number is said to be none. */
export function figure(value: number | null | undefined): string {
  if (value === null || value === undefined) {
    return '–';
  }
  if (!Number.isFinite(value)) {
    return 'not a number';
  }
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(2) : String(Number(value.toPrecision(3)));
}

/** A loss in four significant figures, as Python's `.4g` writes it everywhere else: `0.0001536`, `6.931e-05`. */
export function lossFigure(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) {
    return figure(value);
  }
  const size = Math.abs(value);
  if (size === 0 || (size >= 1e-4 && size < 9999.5)) {
    return String(Number(value.toPrecision(4)));
  }
  const [digits, power = '0'] = value.toExponential(3).split('e');
  return `${Number(digits)}e${power[0]}${power.slice(1).padStart(2, '0')}`;
}

/** `97.2 %`, as Python's `.1f` writes it everywhere else. */
export function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

/** `12.4 MB`. */
export function bytes(n: number): string {
  const units = ['bytes', 'kB', 'MB', 'GB', 'TB'];
  let size = n;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return unit === 0 ? count(n, 'byte') : `${Number(size.toPrecision(3))} ${units[unit]}`;
}

/** `14:02:07`, with the date before it when that is not today; `time` in seconds since the epoch. */
export function clock(time: number, now: number = Date.now() / 1000): string {
  const at = new Date(1000 * time);
  const two = (n: number): string => String(n).padStart(2, '0');
  const hour = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
  const today = new Date(1000 * now).toDateString() === at.toDateString();
  return today ? hour : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${hour}`;
}

/** A time that is computed and not known: in seconds as long as it is near, else `14:02`, in whole minutes. */
export function forecastClock(time: number, now: number = Date.now() / 1000): string {
  return time - now < NEAR ? clock(time, now) : clock(60 * Math.round(time / 60), now).slice(0, -3);
}

/** `3 to 12 min`, `3 to 5 h`: both ends of a forecast in the unit of the later one. */
export function spanWords(earliest: number, latest: number): string {
  const [unit, size, digits] = latest < NEAR ? (['s', 1, 0] as const) : latest < FAR ? (['min', 60, 0] as const) : (['h', 3600, 1] as const);
  const [low, high] = [earliest, latest].map(seconds => Number((Math.max(0, seconds) / size).toFixed(digits)));
  return low === high ? `${high} ${unit}` : low === 0 ? `at most ${high} ${unit}` : `${low} to ${high} ${unit}`;
}

/** `12 s`, `3 min`, `2 h 5 min`, `4 d 2 h`. */
export function span(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 100) {
    return `${s} s`;
  }
  const minutes = Math.round(s / 60);
  if (minutes < 100) {
    return `${minutes} min`;
  }
  const hours = Math.floor(minutes / 60);
  if (hours < 48) {
    return `${hours} h ${minutes % 60} min`;
  }
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** Share of updates done, 0 … 1; null when there is nothing to say yet. */
export function doneShare(view: IJobView): number | null {
  if (view.state === 'FINISHED') {
    return 1;
  }
  const p = view.progress;
  return p && p.total_updates ? Math.min(1, p.update / p.total_updates) : null;
}

/** `update 120 of 200 · epoch 3 of 8 · loss 0.12 · test accuracy 97.2 %`, "" before the first update. */
export function progressWords(view: IJobView): string {
  const p = view.progress;
  if (!p) {
    return '';
  }
  const step = view.validates ? 'test step' : 'update';
  const all = p.total_updates ? ` of ${grouped(p.total_updates)}` : '';
  const parts = [`${step} ${grouped(p.update)}${all}`];
  if (p.epochs) {
    parts.push(`epoch ${Math.min(p.epoch + 1, p.epochs)} of ${p.epochs}`);
  }
  if (p.not_a_number) {
    parts.push('the loss is not a number');
  } else if (p.loss !== null) {
    parts.push(`loss ${lossFigure(p.loss)}`);
  }
  if (p.accuracy !== null) {
    parts.push(`accuracy ${percent(p.accuracy)}`);
  }
  if (p.inexact) {
    parts.push('not exact');
  }
  if (p.test_accuracy !== null) {
    parts.push(`test accuracy ${percent(p.test_accuracy)}`);
  } else if (p.test_loss !== null) {
    parts.push(`test loss ${lossFigure(p.test_loss)}`);
  }
  // The last speed that was measured is none of a job that waits or is suspended.
  if (p.samples_per_second && view.state === 'RUNNING' && view.slots > 0 && !beingSuspended(view)) {
    parts.push(`${figure(p.samples_per_second)} samples/s`);
  }
  return parts.join(' · ');
}

/** The same where there is little room: `update 120 of 200 · loss 0.12 · test accuracy 97.2 %`. */
export function briefProgressWords(view: IJobView): string {
  const p = view.progress;
  const tested = p !== null && (p.test_accuracy !== null || p.test_loss !== null);
  return progressWords(p === null ? view : { ...view, progress: { ...p, epochs: 0, accuracy: tested ? null : p.accuracy } });
}

/** The slots that it can use: its maximum, or as many as it has shards where these are fewer. */
export function usableSlots(view: IJobView): number {
  return Math.max(view.slots, view.min_workers, Math.min(view.max_workers, view.shards ?? view.max_workers));
}

/** `3 of at most 4 slots`; "" for a job that has ended. */
export function slotsWords(view: IJobView): string {
  return isFinal(view.state) ? '' : `${view.slots} of at most ${count(usableSlots(view), 'slot')}`;
}

/** True from the moment somebody suspends it until it is resumed, whether its workers have left or not. */
export function beingSuspended(view: IJobView): boolean {
  return view.state === 'SUSPENDED' || view.reason?.code === 'suspended';
}

/** Its reason in a sentence. A card has a button for what the sentence of a suspended job says in Python and in a shell. */
export function reasonWords(view: IJobView): string {
  const text = view.reason?.text ?? '';
  return view.reason?.code === 'suspended' ? text.replace(/ To go on: .*$/, '') : text;
}

/** What explains the state: why it waits, else the first line of what is said about its stop, its end or its recovery. */
export function whyWords(view: IJobView): string {
  const told = view.message !== '' && !beingSuspended(view);
  if (!isFinal(view.state) && view.reason && !told) {
    return reasonWords(view);
  }
  return view.state !== 'FINISHED' && view.message ? (view.message.trim().split('\n')[0] ?? '') : '';
}

/** `next in line`, `3 jobs before it`, and when it should begin; "" for a job that does not wait in a queue. */
export function queueWords(view: IJobView, now: number = Date.now() / 1000): string {
  const ahead = view.reason?.numbers['ahead'];
  if (view.slots || isFinal(view.state) || typeof ahead !== 'number') {
    return '';
  }
  const place = ahead === 0 ? 'next in line' : `${count(ahead, 'job')} before it`;
  const forecast = view.reason?.numbers['forecast'] as { earliest?: number; latest?: number | null } | undefined;
  if (typeof forecast?.earliest !== 'number') {
    return place;
  }
  const low = forecast.earliest - now;
  const begins =
    typeof forecast.latest === 'number' ? `in ${spanWords(low, forecast.latest - now)}` : `not before ${span(low)}`;
  return `${place}, begins ${begins}`;
}

/** How long it has been going, or how long it took. */
export function timeWords(view: IJobView, now: number = Date.now() / 1000): string {
  if (view.started === null) {
    return view.ended === null ? `submitted ${span(now - view.created)} ago` : 'never began';
  }
  return view.ended === null ? `began ${span(now - view.started)} ago` : `took ${span(view.ended - view.started)}`;
}

/** The job in one short line that can be read aloud. */
export function sentence(view: IJobView): string {
  const progress = briefProgressWords(view).replace(/ · /g, ', ');
  const parts = [`${cut(view.name, 60)}: ${LOOKS[view.state].word}`, slotsWords(view), progress].filter(Boolean).join(', ');
  const why = whyWords(view);
  const text = why ? `${parts} — ${why}` : parts;
  return cut(/[.!?]$/.test(text) ? text : `${text}.`, SAID);
}

/** At most so many letters. */
export function cut(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, most - 1).trimEnd()}…` : text;
}

/** How many of these jobs wait for their first slot, and how many hold some and want more. */
function demand(jobs: readonly IClusterJob[]): { waiting: number; wanting: number } {
  const short = jobs.filter(job => job.held < job.asked);
  const waiting = short.filter(job => job.held === 0).length;
  return { waiting, wanting: short.length - waiting };
}

/** `2 waiting`, `1 wants more`; empty where no job asks for slots. */
export function demandWords(jobs: readonly IClusterJob[]): string[] {
  const { waiting, wanting } = demand(jobs);
  return [waiting && `${waiting} waiting`, wanting && `${wanting} ${wanting === 1 ? 'wants' : 'want'} more`].filter(text => text !== 0);
}
