/**
 * A confusion matrix to be seen: of few classes a table with its counts, of many one dot a cell, with words for the one that
 * is pointed at. What is right is in one colour and what is wrong in another, each as strong as its share of the label.
 */

import { useEffect, useMemo, useRef, useState } from 'react';
import type { PointerEvent, ReactElement } from 'react';

import { useDark } from '../picture_image';

import { cellWords, totals } from './confusion';
import type { Matrix } from './confusion';

/** More classes than this are dots: their counts would not be read. */
const COUNTED = 30;
/** Of the ground of a cell at most this much is its colour, so that its count can be read on it. */
const STRONGEST = 60;

/** `matrix`: rows are labels, columns what the model said. */
export function ConfusionPicture(props: { matrix: Matrix }): ReactElement {
  return (
    <figure className="jp-edt-confusion">
      <figcaption className="jp-edt-hint">
        Rows are labels, columns what the model said. The stronger a colour, the larger the part of that label: right on the
        diagonal, wrong beside it.
      </figcaption>
      {props.matrix.length > COUNTED ? <Dots matrix={props.matrix} /> : <Counts matrix={props.matrix} />}
    </figure>
  );
}

function Counts(props: { matrix: Matrix }): ReactElement {
  const { matrix } = props;
  const of = totals(matrix);
  return (
    <div className="jp-edt-scroll">
      <table aria-label="Confusion matrix">
        <thead>
          <tr>
            <td />
            {matrix.map((_, said) => (
              <th scope="col" key={said}>
                {said}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {matrix.map((row, label) => (
            <tr key={label}>
              <th scope="row">{label}</th>
              {row.map((times, said) => (
                <td
                  key={said}
                  title={cellWords(matrix, label, said)}
                  className={said === label ? 'jp-mod-right' : 'jp-mod-wrong'}
                  style={{ '--jp-edt-share': `${strength(times / (of[label] || 1))}%` } as React.CSSProperties}
                >
                  {times || '·'}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Dots(props: { matrix: Matrix }): ReactElement {
  const { matrix } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const dark = useDark();
  const [at, setAt] = useState<readonly [number, number] | null>(null);
  const of = useMemo(() => totals(matrix), [matrix]);
  const size = matrix.length;
  useEffect(() => {
    const node = canvas.current;
    const pen = node?.getContext('2d') ?? null;
    if (node === null || pen === null) {
      return;
    }
    const style = getComputedStyle(node);
    const [right, wrong] = ['--jp-edt-right', '--jp-edt-wrong'].map(name => style.getPropertyValue(name));
    pen.clearRect(0, 0, size, size);
    matrix.forEach((row, label) =>
      row.forEach((times, said) => {
        if (times > 0) {
          pen.globalAlpha = strength(times / (of[label] || 1)) / STRONGEST;
          pen.fillStyle = (said === label ? right : wrong) ?? '';
          pen.fillRect(said, label, 1, 1);
        }
      })
    );
  }, [matrix, of, size, dark]);
  const point = (event: PointerEvent): void => {
    const place = event.currentTarget.getBoundingClientRect();
    const cell = (from: number, length: number): number => Math.min(size - 1, Math.max(0, Math.floor((size * from) / length)));
    setAt([cell(event.clientY - place.top, place.height), cell(event.clientX - place.left, place.width)]);
  };
  return (
    <>
      <canvas
        ref={canvas}
        width={size}
        height={size}
        role="img"
        aria-label={`Confusion matrix of ${size} classes; the table below has the mistakes that are made most`}
        onPointerMove={point}
        onPointerLeave={() => setAt(null)}
      />
      <p className="jp-edt-hint">{at === null ? 'Point at a dot to read what it is.' : `${cellWords(matrix, ...at)}.`}</p>
    </>
  );
}

/** Also a few of many are to be seen. */
function strength(share: number): number {
  return share === 0 ? 0 : STRONGEST * Math.max(0.12, share);
}
