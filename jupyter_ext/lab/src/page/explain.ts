/** What to tell of something that was thrown: what is wrong, and what to do. */

import { ApiError } from '../api';

/** A sentence and a hint, which may be empty. */
export interface Explained {
  readonly message: string;
  readonly hint: string;
  /** The input it is about, empty where it is about none. */
  readonly field: string;
  /** What was thrown. */
  readonly error?: unknown;
}

/** Of anything that was thrown. */
export function explain(error: unknown): Explained {
  if (error instanceof ApiError) {
    return { message: error.message, hint: error.hint, field: error.field, error };
  }
  const message = error instanceof Error ? error.message : String(error);
  return { message: message || 'It did not work.', hint: '', field: '', error };
}
