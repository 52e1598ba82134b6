/** Figures of tables, where "not there" is a dash. Everything else is in `../words`. Pure. */

import { percent } from '../words';

/** 0.934 → "93.4 %"; a dash for none. */
export function share(value: number | null | undefined): string {
  return value === null || value === undefined || !Number.isFinite(value) ? '–' : percent(value);
}
