/** What happened to a job and why, as sentences with their times. */

import { useRef } from 'react';
import type { ReactElement } from 'react';

import { useEdt } from '../page/surroundings';
import { usePolled } from '../page/polled';
import { Answer, Empty } from '../page/standing';
import { clock, count } from '../words';
import type { IJobEvent } from '../views';

const MOST = 2000;

/** The newest first. */
export function Story(props: { job: string; seconds: number | null }): ReactElement {
  const { api } = useEdt();
  const known = useRef<{ job: string; events: IJobEvent[]; next: number }>({ job: '', events: [], next: 0 });
  const read = async (): Promise<readonly IJobEvent[]> => {
    if (known.current.job !== props.job) {
      known.current = { job: props.job, events: [], next: 0 };
    }
    for (;;) {
      const page = await api.events(props.job, known.current.next);
      const events = known.current.events.concat(page.events);
      known.current = { job: props.job, events, next: page.next };
      if (page.events.length === 0 || page.done) {
        return events;
      }
    }
  };
  const answer = usePolled(`story ${props.job}`, read, props.seconds);
  return (
    <Answer of={answer} what="Reading the story">
      {events => {
        const told = events.filter(event => event.text !== '');
        return told.length === 0 ? (
          <Empty>
            <p>Nothing has happened yet.</p>
          </Empty>
        ) : (
          <>
            {told.length > MOST && (
              <p className="jp-edt-hint">
                The newest {MOST} of {count(told.length, 'event')}; <code>edt story {props.job}</code> prints all.
              </p>
            )}
            <ol className="jp-edt-story" reversed aria-label="What happened, the newest first">
              {told
                .slice(-MOST)
                .reverse()
                .map(event => (
                  <li key={event.seq}>
                    <time dateTime={new Date(event.time * 1000).toISOString()}>{clock(event.time)}</time>
                    <span>{event.text}</span>
                  </li>
                ))}
            </ol>
          </>
        );
      }}
    </Answer>
  );
}
