/**
 * Curves in a chart by uPlot: a drag zooms, a double click shows all again, and the legend has the values under the cursor.
 * Below the curves are marks of events and a strip with the number of workers, over the same x axis.
 */

import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'react';
import type { ReactElement } from 'react';

import uPlot from 'uplot';

import { useDark } from '../picture_image';
import { figure, lossFigure } from '../words';
import type { ICurve } from '../views';

import { lowest, table } from './curves';
import type { Line, Steps } from './curves';
import type { Stretch } from './stretch';
import { ZOOM_KEYS, ZoomBar, zoomByKey } from './zoom_bar';
import type { Zoom } from './zoom_bar';

type Mark = ICurve['marks'][number];

/** The colours of the static pictures, edt_sdk/pictures/parts/look.py, by theme. */
const INKS = {
  light: { train: '#1f6fc0', test: '#b85c00', good: '#1a7f42', bad: '#c0283d', soft: '#59636e', warn: '#8a6100' },
  dark: { train: '#5ba6ee', test: '#ec9a4b', good: '#4cc27d', bad: '#f0707f', soft: '#9da7b3', warn: '#d9a520' }
} as const;

/** The colours of the theme. */
export function useInk(): { readonly [name in keyof (typeof INKS)['light']]: string } {
  return INKS[useDark() ? 'dark' : 'light'];
}

/** What marks look like around 0, 0 and mean, the least important kind first. */
const MARKS: Record<Mark['kind'], { path: string; ink: keyof (typeof INKS)['light']; stroke: boolean; word: string }> = {
  checkpoint: { path: 'M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z', ink: 'train', stroke: false, word: 'checkpoint' },
  grow: { path: 'M-4.5 3.5L0 -4.5L4.5 3.5Z', ink: 'good', stroke: false, word: 'more workers' },
  shrink: { path: 'M-4.5 -3.5L0 4.5L4.5 -3.5Z', ink: 'soft', stroke: false, word: 'fewer workers' },
  failure: { path: 'M-4 -4L4 4M-4 4L4 -4', ink: 'bad', stroke: true, word: 'failure' }
};
const KINDS = Object.keys(MARKS) as Mark['kind'][];
const CROSS = new Path2D(MARKS.failure.path);

/** Pixels: the least distance of two marks of a kind, the rows of marks and workers, what is below a row, the x labels. */
const APART = 7;
const MARKS_ROW = 18;
const STRIP = 24;
const GAP = 6;
const LABELS = 22;

const WORKERS: uPlot.Series = {
  label: 'workers',
  scale: 'workers',
  paths: () => null,
  points: { show: false },
  value: (_, count) => figure(count)
};
const NO_STEPS: Steps = { x: [], count: [] };
const NO_MARKS: readonly Mark[] = [];

interface Shown {
  lines: readonly Line[];
  workers: Steps;
  marks: readonly Mark[];
  named: (x: number) => string;
}

/** The chart with its zoom and legend. `axis` is samples, updates or time, `text` says the chart as a sentence. */
export function Chart(
  props: Zoom & { lines: readonly Line[]; axis: string; text: string; log: boolean; workers?: Steps; marks?: readonly Mark[] }
): ReactElement {
  const { lines, axis, log, stretch, onStretch, named, workers = NO_STEPS, marks = NO_MARKS } = props;
  const box = useRef<HTMLDivElement>(null);
  const chart = useRef<uPlot | null>(null);
  const [pointed, setPointed] = useState('');
  const ink = useInk();
  const floor = useMemo(() => (log ? lowest(lines) : null), [lines, log]);
  const data = useMemo(() => table(lines, workers, floor), [lines, workers, floor]);
  const whole = useMemo(() => reach(data), [data]);
  const shown = useRef<Shown>({ lines, workers, marks, named });
  shown.current = { lines, workers, marks, named };
  const zoomed = useRef(onStretch);
  zoomed.current = onStretch;
  const below = (marks.length > 0 ? MARKS_ROW : GAP) + (workers.x.length > 0 ? STRIP + GAP : 0);
  // What the chart is made of. New points do not change it, so that they leave the cursor and hidden curves alone.
  const made = JSON.stringify([lines.map(({ points: _, ...look }) => look), axis, floor !== null, below, ink]);

  useLayoutEffect(() => {
    const host = box.current!;
    const drawn = new uPlot(options(host, lines, axis, floor !== null, below, ink, shown, zoomed, setPointed), data, host);
    chart.current = drawn;
    drawn.ctx.canvas.setAttribute('role', 'img');
    const observer = new ResizeObserver(() => drawn.setSize(size(host)));
    observer.observe(host);
    return () => {
      observer.disconnect();
      drawn.destroy();
      chart.current = null;
    };
  }, [made]);
  useEffect(() => chart.current?.ctx.canvas.setAttribute('aria-label', props.text), [made, props.text]);
  const range = stretch ?? whole;
  useEffect(() => {
    chart.current?.setData(data, false);
    chart.current?.setScale('x', { min: range.start, max: range.end });
  }, [made, data, marks, range.start, range.end]);

  const kinds = KINDS.filter(kind => marks.some(mark => mark.kind === kind)).reverse();
  return (
    <>
      <ZoomBar stretch={stretch} onStretch={onStretch} named={named} what="chart" />
      <div
        className="jp-edt-chart"
        tabIndex={0}
        role="group"
        aria-label={`Chart; ${ZOOM_KEYS}`}
        onKeyDown={event => zoomByKey(event, props, whole)}
      >
        <div ref={box} />
        <p className="jp-edt-hint jp-edt-chart-marks">
          {kinds.map(kind => (
            <span key={kind}>
              <svg width="10" height="10" viewBox="-5 -5 10 10" aria-hidden="true">
                <path
                  d={MARKS[kind].path}
                  fill={MARKS[kind].stroke ? 'none' : ink[MARKS[kind].ink]}
                  stroke={MARKS[kind].stroke ? ink[MARKS[kind].ink] : 'none'}
                  strokeWidth={2}
                />
              </svg>{' '}
              {MARKS[kind].word}
            </span>
          ))}
          {kinds.length > 0 && <span aria-live="polite">{pointed || 'Point at a mark to read what happened.'}</span>}
        </p>
      </div>
    </>
  );
}

/** All of the x axis; never of no length, which could not be drawn. */
function reach(data: uPlot.AlignedData): Stretch {
  const [xs] = data;
  const start = xs[0] ?? 0;
  const end = xs[xs.length - 1] ?? 1;
  return { start, end: end > start ? end : start + 1 };
}

function size(host: HTMLElement): { width: number; height: number } {
  const width = Math.max(240, host.clientWidth);
  return { width, height: Math.round(Math.min(400, Math.max(220, 0.36 * width))) };
}

function options(
  host: HTMLElement,
  lines: readonly Line[],
  axis: string,
  log: boolean,
  below: number,
  ink: ReturnType<typeof useInk>,
  shown: { readonly current: Shown },
  zoomed: { readonly current: (stretch: Stretch | null) => void },
  onPointed: (text: string) => void
): uPlot.Options {
  const named = (x: number): string => shown.current.named(x);
  const colour = (name: string): string => getComputedStyle(host).getPropertyValue(name).trim();
  const text = (): string => colour('--jp-ui-font-color2');
  const look: uPlot.Axis = {
    font: `11px ${colour('--jp-ui-font-family') || 'sans-serif'}`,
    stroke: text,
    ticks: { show: false },
    grid: { stroke: () => colour('--jp-border-color2'), width: 1 }
  };
  const values: uPlot.Series[] = lines.map(line => ({
    label: line.label,
    stroke: line.colour,
    width: line.width,
    alpha: line.faint === true ? 0.35 : 1,
    value: (_, value) => lossFigure(value),
    ...(line.dash === undefined ? {} : { dash: [...line.dash] }),
    ...(line.width > 0 ? {} : { paths: () => null, fill: line.colour }),
    // Without `show` the library draws them where there is room.
    points: { size: line.dots === true ? 6 : 5, fill: line.colour, ...(line.dots === true ? { show: true } : {}) }
  }));
  return {
    ...size(host),
    scales: {
      x: { time: false, range: (_, min, max) => [min, max] },
      y: { distr: log ? 3 : 1, range: (_, min, max) => (log ? [min / 1.2, max * 1.2] : withRoom(min, max)) },
      workers: { range: [0, 1] }
    },
    axes: [
      {
        ...look,
        gap: below,
        size: LABELS + below,
        space: axis === 'time' ? 120 : 70,
        values: (_, splits) => splits.map(named),
        label: axis,
        labelFont: look.font!,
        labelSize: 18
      },
      { ...look, size: 46, label: 'loss', labelFont: look.font!, labelSize: 18 }
    ],
    series: [
      { label: axis, value: (_, x) => (x === null || x === undefined ? '–' : named(x)) },
      ...values,
      // Its values are in the legend; `drawBelow` draws it.
      ...(shown.current.workers.x.length === 0 ? [] : [WORKERS])
    ],
    cursor: {
      y: false,
      drag: { x: true, y: false, setScale: false },
      // Curves have points at different places: of each the nearest counts.
      dataIdx: (u, series, at) => (series === 0 ? at : nearest(u.data[series]!, at)),
      bind: {
        dblclick: () => () => {
          zoomed.current(null);
          return null;
        }
      }
    },
    hooks: {
      draw: [
        u => {
          drawBelow(u, shown.current, ink, text());
          drawMissing(u, lines.length, ink.warn);
          latest(u);
        }
      ],
      setScale: [
        (u, key) => {
          if (key === 'x') {
            host.dataset['shown'] = `${u.scales['x']!.min} ${u.scales['x']!.max}`;
          }
        }
      ],
      setCursor: [
        u => {
          latest(u);
          onPointed(pointedAt(u, shown.current.marks));
        }
      ],
      setSelect: [
        u => {
          const { left, width } = u.select;
          if (width > 0) {
            u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            zoomed.current({ start: u.posToVal(left, 'x'), end: u.posToVal(left + width, 'x') });
          }
        }
      ]
    }
  };
}

/** The y axis of these losses: a little room above and, unless they are near 0, below. */
function withRoom(min: number | null, max: number | null): [number, number] {
  if (min === null || max === null) {
    return [0, 1];
  }
  const room = (max - min) * 0.06 || Math.abs(max) * 0.1 || 1;
  return [min >= 0 && min <= 0.4 * max ? 0 : min - room, max + room];
}

/** The index nearest to `at` with a number, null without one. */
function nearest(column: ArrayLike<number | null | undefined>, at: number): number | null {
  for (let away = 0; away < column.length; away += 1) {
    for (const found of [at - away, at + away]) {
      if (typeof column[found] === 'number') {
        return found;
      }
    }
  }
  return null;
}

/** Without a cursor the legend has the newest values. */
function latest(u: uPlot): void {
  if ((u.cursor.left ?? -1) < 0) {
    const last = u.data[0].length - 1;
    u.setLegend({ idxs: u.data.map(column => nearest(column, last)) }, false);
  }
}

function pointedAt(u: uPlot, marks: readonly Mark[]): string {
  const left = u.cursor.left ?? -1;
  const near = left < 0 ? [] : marks.filter(mark => Math.abs(u.valToPos(mark.at, 'x') - left) <= APART);
  const texts = near.slice(0, 3).map(mark => mark.text);
  return texts.join('; ') + (near.length > texts.length ? ` … (${near.length} marks)` : '');
}

/** Draw around a place in CSS pixels of the whole canvas. */
function at(u: uPlot, x: number, y: number, draw: (context: CanvasRenderingContext2D) => void): void {
  const ratio = uPlot.pxRatio;
  u.ctx.save();
  u.ctx.setTransform(ratio, 0, 0, ratio, x * ratio, y * ratio);
  draw(u.ctx);
  u.ctx.restore();
}

/** The plot in CSS pixels of the whole canvas. */
function plot(u: uPlot): { left: number; right: number; top: number; bottom: number } {
  const { left, top, width, height } = u.bbox;
  const ratio = uPlot.pxRatio;
  return { left: left / ratio, right: (left + width) / ratio, top: top / ratio, bottom: (top + height) / ratio };
}

function drawBelow(u: uPlot, shown: Shown, ink: ReturnType<typeof useInk>, text: string): void {
  const { left, right, top, bottom } = plot(u);
  const place = (x: number): number => left + u.valToPos(x, 'x');
  for (const kind of KINDS) {
    const path = new Path2D(MARKS[kind].path);
    let last = -Infinity;
    for (const mark of shown.marks.filter(each => each.kind === kind)) {
      const x = place(mark.at);
      if (x < left || x > right || x - last < APART) {
        continue;
      }
      last = x;
      at(u, x, bottom + 10, context => {
        context.fillStyle = context.strokeStyle = ink[MARKS[kind].ink];
        context.lineWidth = 2;
        if (MARKS[kind].stroke) {
          context.stroke(path);
        } else {
          context.fill(path);
        }
        if (kind !== 'checkpoint') {
          context.globalAlpha = 0.3;
          context.fillStyle = text;
          context.fillRect(-0.5, top - bottom - 10, 1, bottom - top);
        }
      });
    }
  }
  const { x: xs, count } = shown.workers;
  const most = Math.max(1, ...count);
  const base = bottom + (shown.marks.length > 0 ? MARKS_ROW : GAP) + STRIP;
  xs.forEach((x, i) => {
    const from = Math.max(left, place(x));
    const to = i + 1 < xs.length ? Math.min(right, place(xs[i + 1]!)) : right;
    if (to <= from) {
      return;
    }
    const tall = (count[i]! / most) * (STRIP - 4);
    at(u, from, base, context => {
      context.globalAlpha = 0.4;
      context.fillStyle = ink.good;
      context.fillRect(0, -tall, to - from, tall);
      context.globalAlpha = 1;
      context.fillStyle = text;
      context.font = '11px sans-serif';
      context.textAlign = 'center';
      if (to - from > context.measureText(`${count[i]}`).width + 6) {
        context.fillText(`${count[i]}`, (to - from) / 2, -4);
      }
    });
  });
  if (xs.length > 0) {
    at(u, left - 6, base, context => {
      context.fillStyle = text;
      context.font = '11px sans-serif';
      context.textAlign = 'right';
      context.fillText('workers', 0, -4);
    });
  }
}

/** A loss that is not a number is a cross at the upper edge, never only a gap. */
function drawMissing(u: uPlot, lines: number, colour: string): void {
  const { left, right, top } = plot(u);
  for (const column of u.data.slice(1, lines + 1)) {
    let last = -Infinity;
    u.data[0].forEach((value, i) => {
      const x = left + u.valToPos(value, 'x');
      if (column![i] === null && x >= left && x <= right && x - last >= APART + 1) {
        last = x;
        at(u, x, top + 6, context => {
          context.strokeStyle = colour;
          context.lineWidth = 2;
          context.stroke(CROSS);
        });
      }
    });
  }
}
