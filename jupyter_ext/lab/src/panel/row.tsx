/** One job in the panel: state, name, slots, how far, and in a sentence why it is not further. */
import { Progress, State } from '../state';
import { type IJobView, isFinal } from '../views';
import { briefProgressWords, progressWords, queueWords, slotsWords, span, timeWords, usableSlots, whyWords } from '../words';

export const ROW_HEIGHT = 74;

export function Row({ view, mine }: { view: IJobView; mine: boolean }): JSX.Element {
  const why = whyWords(view);
  const further = progressWords(view) || timeWords(view);
  // A job that trains says how far it is; one that does not says why.
  const explained = why !== '' && (!view.slots || view.state === 'RECOVERING' || isFinal(view.state));
  const queue = queueWords(view);
  return (
    <>
      <div className="jp-edt-row-head">
        <State state={view.state} />
        <b className="jp-edt-name" title={`${view.name} (${view.id})`}>
          {view.name}
        </b>
        <span className="jp-edt-row-slots" title={`${slotsWords(view)}, its maximum is ${view.max_workers}`}>
          {isFinal(view.state) ? '' : `${view.slots}/${usableSlots(view)} slots`}
        </span>
      </div>
      <Progress view={view} />
      <div className="jp-edt-row-says" title={[mine ? '' : `of ${view.owner}`, why, further, timeWords(view)].filter(Boolean).join('\n')}>
        {mine ? '' : `${view.owner} · `}
        {queue ? <b>{queue}. </b> : null}
        {explained ? why : briefProgressWords(view) || further}
        {view.ended === null ? '' : ` · ${span(Date.now() / 1000 - view.ended)} ago`}
      </div>
    </>
  );
}
