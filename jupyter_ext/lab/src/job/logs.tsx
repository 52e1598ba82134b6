/** The log of a job: whose lines, a search, following, and a window on as many lines as there are. */

import { useEffect, useMemo, useRef, useState } from 'react';
import type { ReactElement, RefObject } from 'react';

import { Failure, Loading, Stale } from '../page/standing';
import { Scroll } from '../page/scroll';
import { bytes, clock, grouped } from '../words';
import type { IWorker } from '../views';

import { useLog } from './log_feed';
import type { LogChoice, LogFeed } from './log_feed';
import { KEPT, matching, settled, speaker, wrapped } from './log_lines';
import type { Row, ShownLine } from './log_lines';

const HEIGHT = 18;
const PIECE = 5000;
/** Characters of a row that the speaker and the gaps take; see `logs.css`. */
const SPEAKER = 14;
const NARROWEST = 30;

/** `workers` are those of now; those seen in the log are offered too. */
export function Logs(props: {
  job: string;
  ended: boolean;
  workers: readonly IWorker[];
  onDownload: () => void;
}): ReactElement {
  const [choice, setChoice] = useState<LogChoice>({ stream: 'all', worker: null, whole: false });
  const [wanted, setWanted] = useState('');
  const [follow, setFollow] = useState(true);
  const [open, setOpen] = useState<ShownLine | null>(null);
  const feed = useLog(props.job, choice);
  const lines = useMemo(() => matching(feed.lines, wanted), [feed.lines, wanted]);
  const probe = useRef<HTMLSpanElement>(null);
  // The first line has the longest time: only times of other days have a date.
  const time = lines[0] === undefined ? 0 : clock(lines[0].line.time).length;
  const columns = Math.max(NARROWEST, useColumns(probe) - time - SPEAKER);
  const rows = useMemo(() => wrapped(lines, columns), [lines, columns]);
  const numbers = useMemo(() => workerNumbers(props.workers, feed.lines), [props.workers, feed.lines]);

  const choose = (value: string): void => {
    const worker = /^worker-(\d+)$/.exec(value);
    const { whole } = choice;
    setChoice(
      worker === null
        ? { stream: value as LogChoice['stream'], worker: null, whole }
        : { stream: 'worker', worker: Number(worker[1]), whole }
    );
    setFollow(true);
  };
  const value = choice.worker === null ? choice.stream : `worker-${choice.worker}`;
  const known = choice.worker === null || numbers.includes(choice.worker) ? numbers : [...numbers, choice.worker];
  return (
    <div className="jp-edt-logs">
      <span ref={probe} className="jp-edt-log-probe" aria-hidden="true" />
      <div className="jp-edt-toolbar">
        <label>
          Lines of{' '}
          <select value={value} onChange={event => choose(event.target.value)}>
            <option value="all">everybody</option>
            <option value="driver">the driver (your script)</option>
            <option value="elog">EDT&apos;s log (ELog)</option>
            <option value="worker">all workers</option>
            {known.map(number => (
              <option key={number} value={`worker-${number}`}>
                worker {number}
              </option>
            ))}
          </select>
        </label>
        <input
          type="search"
          className="jp-edt-search"
          placeholder="Search the log"
          aria-label="Search the log"
          value={wanted}
          onChange={event => setWanted(event.target.value)}
        />
        <label>
          <input type="checkbox" checked={follow} onChange={event => setFollow(event.target.checked)} /> Follow
        </label>
        <button type="button" className="jp-edt-button" onClick={props.onDownload}>
          Download log
        </button>
        {!choice.whole && feed.read > 0 && (
          <button type="button" className="jp-edt-button" onClick={() => setChoice({ ...choice, whole: true })}>
            Read from the beginning
          </button>
        )}
        <span className="jp-edt-hint" role="status">
          {told(feed, lines.length, wanted, choice.whole)}
        </span>
      </div>
      {feed.error !== null && feed.taken === 0 && <Failure error={feed.error} again={feed.again} />}
      {feed.error !== null && feed.taken > 0 && <Stale error={feed.error} taken={feed.taken} again={feed.again} />}
      {feed.taken === 0 && feed.error === null && <Loading what="Reading the log" />}
      {feed.taken > 0 && feed.lines.length === 0 && <p className="jp-edt-standing">{silent(props.ended, choice)}</p>}
      {feed.lines.length > 0 && lines.length === 0 && (
        <p className="jp-edt-standing">
          No line contains “{wanted}”. {feed.done ? '' : 'Lines that come are searched too.'}
        </p>
      )}
      {lines.length > 0 && (
        <Scroll
          className="jp-edt-log"
          count={rows.length}
          height={HEIGHT}
          label="Log"
          follow={follow}
          onFollow={setFollow}
          row={index => <Line row={rows[index] as Row} time={time} onOpen={setOpen} />}
        />
      )}
      {open !== null && <Whole line={open} onClose={() => setOpen(null)} />}
    </div>
  );
}

/** Follow how many characters of the log's font fit beside each other, from a `probe` as wide as the log and as high as 10 of them are wide. */
function useColumns(probe: RefObject<HTMLElement>): number {
  const [columns, setColumns] = useState(100);
  useEffect(() => {
    const node = probe.current;
    if (node === null) {
      return;
    }
    const measure = (): void => {
      const { width, height } = node.getBoundingClientRect();
      if (width > 0 && height > 0) {
        setColumns(Math.floor((10 * width) / height));
      }
    };
    const observer = new ResizeObserver(measure);
    observer.observe(node);
    return () => observer.disconnect();
  }, [probe]);
  return columns;
}

/** `time`: characters of the longest time. */
function Line(props: { row: Row; time: number; onOpen: (line: ShownLine) => void }): ReactElement {
  const { row } = props;
  const line = row.of;
  return (
    <div className={`jp-edt-log-line${line.line.err ? ' jp-mod-err' : ''}`}>
      <span className="jp-edt-log-time" style={{ width: `${props.time}ch` }}>
        {row.begins && clock(line.line.time)}
      </span>
      <span className="jp-edt-log-who">
        {row.begins && `${speaker(line.line)}${line.line.err ? ' !' : ''}`}
      </span>
      <span className="jp-edt-log-text">
        {row.text}
        {row.ends && line.cut ? ' … ' : ''}
        {row.ends && line.cut && (
          <button type="button" className="jp-edt-link" onClick={() => props.onOpen(line)}>
            show all ({bytes(line.line.text.length)})
          </button>
        )}
      </span>
    </div>
  );
}

/** A line too long for its row, in pieces that a browser lays out one by one when they come into view. */
function Whole(props: { line: ShownLine; onClose: () => void }): ReactElement {
  const text = settled(props.line.line.text);
  const here = useRef<HTMLElement>(null);
  useEffect(() => {
    void here.current?.scrollIntoView({ block: 'nearest' });
  }, [props.line]);
  const pieces: string[] = [];
  for (let at = 0; at < text.length; at += PIECE) {
    pieces.push(text.slice(at, at + PIECE));
  }
  return (
    <section className="jp-edt-log-whole" ref={here} aria-label="The whole line">
      <div className="jp-edt-toolbar">
        <strong>The whole line</strong>
        <span className="jp-edt-hint">
          {speaker(props.line.line)}, {clock(props.line.line.time)}, {bytes(text.length)}
        </span>
        <button type="button" className="jp-edt-button" onClick={props.onClose}>
          Close
        </button>
      </div>
      <div className="jp-edt-log-pieces" tabIndex={0}>
        {pieces.map((piece, index) => (
          <div key={index}>{piece}</div>
        ))}
      </div>
    </section>
  );
}

function workerNumbers(workers: readonly IWorker[], lines: readonly ShownLine[]): number[] {
  const found = new Set(workers.map(worker => worker.worker));
  for (const { line } of lines) {
    if (line.worker !== null) {
      found.add(line.worker);
    }
  }
  return [...found].sort((a, b) => a - b);
}

function told(feed: LogFeed, matches: number, wanted: string, whole: boolean): string {
  const { read, lines, caughtUp } = feed;
  // How many there are before these nobody knows: the server reads from the end.
  const what = whole ? 'lines' : 'newest lines';
  const parts = [wanted === '' ? `${grouped(read)} ${what}` : `${grouped(matches)} of ${grouped(lines.length)} ${what}`];
  if (!caughtUp && read > 0) {
    parts.push('reading on …');
  }
  if (read > lines.length) {
    parts.push(`the newest ${grouped(KEPT)} are here, all are in the download`);
  }
  return parts.join(' · ');
}

function silent(ended: boolean, choice: LogChoice): string {
  const who = choice.stream === 'all' ? 'The job' : choice.worker === null ? 'This part of it' : `Worker ${choice.worker}`;
  return ended
    ? `${who} has said nothing.`
    : `${who} has said nothing yet. What your script prints appears here, line by line, as soon as it is printed.`;
}
