/** What a form would do, asked while it is filled in. */

import { useEffect, useState } from 'react';

import { ApiError, LOGGED_OUT } from '../api';

import { explain } from './explain';
import type { Explained } from './explain';
import { useEdt } from './surroundings';

const PAUSE = 400;
/** Milliseconds until a server that did not answer is asked again. */
const AGAIN = 3000;
export const NOTHING_WRONG: Explained = { message: '', hint: '', field: '' };

/** The answer of a path to a request (its JSON), a moment after that was last changed; "" for none. */
export function usePreview<T>(path: string, body: string): { value: T | null; fresh: boolean; error: Explained } {
  const { api } = useEdt();
  const [value, setValue] = useState<T | null>(null);
  const [answered, setAnswered] = useState('');
  const [error, setError] = useState<Explained>(NOTHING_WRONG);
  useEffect(() => {
    setError(NOTHING_WRONG);
    if (body === '') {
      setValue(null);
      return;
    }
    let over = false;
    const ask = async (): Promise<void> => {
      try {
        const answer = await api.request<T>(path, {}, 'POST', JSON.parse(body));
        if (!over) {
          setValue(answer);
          setAnswered(body);
          setError(NOTHING_WRONG);
        }
      } catch (thrown) {
        if (!over) {
          setValue(null);
          setError(explain(thrown));
          if (thrown instanceof ApiError && (thrown.unreachable || thrown.code === LOGGED_OUT)) {
            timer = window.setTimeout(() => void ask(), AGAIN);
          }
        }
      }
    };
    let timer = window.setTimeout(() => void ask(), PAUSE);
    return () => {
      over = true;
      window.clearTimeout(timer);
    };
  }, [api, path, body]);
  return { value, fresh: answered === body, error };
}
