/** What a change would do, in one sentence. Pure. */

import { count, forecastClock } from '../words';

import type { IWhatIf } from './answers';

const MOST = 4;

/** "This job 2 → 3 slots, digits 2 → 1; It would end at about 14:20; as things are, at about 14:32." */
export function whatIfText(answer: IWhatIf, now: number): string {
  const mine = answer.shares.find(share => share.job === answer.job);
  const others = answer.shares.filter(share => share.job !== answer.job && share.now !== share.then);
  const moved = others.slice(0, MOST).map(share => `${share.name} ${share.now} → ${share.then}`);
  if (others.length > MOST) {
    moved.push(`${count(others.length - MOST, 'more job')}`);
  }
  const sentences = [`${own(mine)}${moved.length > 0 ? `; ${moved.join(', ')}` : ''}`];
  const ending = end(answer, now);
  if (ending !== '') {
    sentences.push(ending);
  }
  if (answer.reason !== null && answer.reason.text !== '') {
    sentences.push(answer.reason.text.replace(/\.$/, ''));
  }
  return `${sentences.join('. ')}.`;
}

function own(mine: { now: number; then: number } | undefined): string {
  if (mine === undefined) {
    return 'This job holds no slot';
  }
  return mine.now === mine.then
    ? `This job keeps ${count(mine.now, 'slot')}`
    : `This job ${mine.now} → ${count(mine.then, 'slot')}`;
}

function end(answer: IWhatIf, now: number): string {
  if (answer.ends_then === null) {
    return '';
  }
  const then = forecastClock(answer.ends_then, now);
  return answer.ends_now === null
    ? `It would end at about ${then}`
    : `It would end at about ${then}; as things are, at about ${forecastClock(answer.ends_now, now)}`;
}
