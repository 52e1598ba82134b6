/** What a validation came to: its metrics, the confusion matrix with the worst mistakes, each class. */

import type { ReactElement } from 'react';

import { type Column, Table } from '../page/table';
import { grouped, percent } from '../words';

import { type Mistake, worst } from './confusion';
import { ConfusionPicture } from './confusion_picture';
import { metricName, metricValue } from './metric_words';
import type { IClassScores, IValidated } from './validation_answers';

const MISTAKES = 10;
const CLASSES = 100;

/** All of it. */
export function ValidationResult(props: { of: IValidated }): ReactElement {
  const { of } = props;
  return (
    <div className="jp-edt-validation">
      <p>{head(of)}</p>
      <Table
        label="Metrics"
        narrow
        rows={[...measured(of.metrics, false), ...measured(of.own, true)]}
        keyOf={each => each.name}
        columns={METRIC}
      />
      {of.confusion !== null && (
        <section aria-label="Confusion">
          <h3>What was taken for what</h3>
          <div className="jp-edt-confusion-row">
            <ConfusionPicture matrix={of.confusion} />
            <Mistakes of={of.confusion} />
          </div>
        </section>
      )}
      {of.per_class.length > 0 && <Classes of={of.per_class} />}
    </div>
  );
}

/** A metric with its value; `own` is one of the script's. */
interface Measured {
  readonly name: string;
  readonly value: number | null;
  readonly own: boolean;
}

const METRIC: readonly Column<Measured>[] = [
  { head: 'Metric', cell: ({ name, own }) => (own ? name : metricName(name)) },
  { head: 'Value', number: true, cell: ({ name, own, value }) => metricValue(own ? '' : name, value) }
];

function measured(metrics: Readonly<Record<string, number | null>>, own: boolean): Measured[] {
  return Object.entries(metrics).map(([name, value]) => ({ name, value, own }));
}

function head(of: IValidated): string {
  const classes = of.classes === null ? '' : `, ${of.classes} classes`;
  const by = of.threshold === null ? '' : `; class 1 from a score of ${of.threshold} on`;
  return `${of.training_name} over ${grouped(of.samples)} samples${classes}${by}.`;
}

function Mistakes(props: { of: readonly (readonly number[])[] }): ReactElement {
  const mistakes = worst(props.of, MISTAKES);
  if (mistakes.length === 0) {
    return <p>There is no mistake.</p>;
  }
  return (
    <Table
      label="The mistakes made most"
      narrow
      rows={mistakes}
      keyOf={({ label, said }) => `${label} ${said}`}
      columns={MISTAKE}
    />
  );
}

const MISTAKE: readonly Column<Mistake>[] = [
  { head: 'Label', number: true, cell: each => each.label },
  { head: 'Taken for', number: true, cell: each => each.said },
  { head: 'Times', number: true, cell: each => each.times },
  { head: 'Of that label', number: true, cell: each => percent(each.share) }
];

function Classes(props: { of: readonly IClassScores[] }): ReactElement {
  const more = props.of.length - CLASSES;
  return (
    <section aria-label="Classes">
      <h3>Each class</h3>
      <Table
        label="Each class"
        narrow
        rows={props.of.slice(0, CLASSES)}
        keyOf={each => each.label}
        columns={CLASS}
      />
      {more > 0 && <p className="jp-edt-hint">And {more} more: validation.json, in “Download …”, has all of them.</p>}
    </section>
  );
}

const CLASS: readonly Column<IClassScores>[] = [
  { head: 'Class', number: true, cell: each => each.label },
  { head: 'Labels', number: true, cell: each => each.samples },
  { head: 'Precision', number: true, cell: each => metricValue('precision', each.precision) },
  { head: 'Recall', number: true, cell: each => metricValue('recall', each.recall) },
  { head: 'F1', number: true, cell: each => metricValue('f1', each.f1) }
];
