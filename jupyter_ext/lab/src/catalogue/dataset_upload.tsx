/** A data set's files on their way from this machine: one upload at a time, how far it is, and how it is stopped. */

import { useEffect, useRef, useState } from 'react';
import type { ReactElement } from 'react';

import type { Api } from '../api';
import { WrongAnswer } from '../page/form';
import { send } from '../sending';
import { bytes } from '../words';

import type { Chosen } from './chosen_files';
import { tar } from './tar';

/** What is under way: bytes sent, and bytes to send. */
export interface Underway {
  readonly sent: number;
  readonly total: number;
}

/** The upload of a form. */
export interface Upload {
  readonly underway: Underway | null;
  /** Register `spec` with these files; false when it was stopped. Throws what is wrong. */
  readonly start: (spec: Record<string, unknown>, chosen: Chosen) => Promise<boolean>;
  readonly stop: () => void;
}

/** It ends with the form: nothing of it is kept then. */
export function useUpload(api: Api): Upload {
  const [underway, setUnderway] = useState<Underway | null>(null);
  const stopping = useRef<AbortController | null>(null);
  useEffect(() => {
    const ask = (event: BeforeUnloadEvent): void => {
      if (stopping.current !== null) {
        event.preventDefault();
      }
    };
    window.addEventListener('beforeunload', ask);
    return () => {
      window.removeEventListener('beforeunload', ask);
      stopping.current?.abort();
    };
  }, []);
  const start = async (spec: Record<string, unknown>, chosen: Chosen): Promise<boolean> => {
    const { max_upload_bytes: most } = await api.info();
    const [file, name] = packed(chosen);
    if (file.size > most) {
      throw new WrongAnswer(
        'files',
        `That is ${bytes(file.size)}, and this server takes ${bytes(most)} at once. ` +
          "Put it into the server's data folder and register it there, or ask for a larger c.EdtApp.max_upload_bytes."
      );
    }
    const form = new FormData();
    form.append('spec', JSON.stringify(spec));
    form.append('package', file, name);
    const controller = new AbortController();
    stopping.current = controller;
    setUnderway({ sent: 0, total: file.size });
    try {
      await send(api, 'datasets', form, (sent, total) => setUnderway({ sent, total }), controller.signal);
      return true;
    } catch (error) {
      if (controller.signal.aborted) {
        return false;
      }
      throw error;
    } finally {
      stopping.current = null;
      setUnderway(null);
    }
  };
  return { underway, start, stop: () => stopping.current?.abort() };
}

/** One file as it is, several as an archive. */
function packed(chosen: Chosen): [Blob, string] {
  const [first] = chosen.entries;
  return chosen.entries.length === 1 && first !== undefined && !first.name.includes('/')
    ? [first.file, first.name]
    : [tar(chosen.entries), 'files.tar'];
}

/** How far it is. */
export function UploadProgress(props: { of: Underway; onStop: () => void }): ReactElement {
  const { sent, total } = props.of;
  const whole = total > 0 && sent >= total;
  return (
    <div className="jp-edt-upload jp-mod-wide">
      <progress aria-label="Upload" max={total} value={whole ? undefined : sent} />
      <span role="status">
        {whole
          ? 'All of it is sent; the server puts it in its place …'
          : `${bytes(sent)} of ${bytes(total)} sent. Stay on this tab until it is there.`}
      </span>
      <button type="button" className="jp-edt-button" onClick={props.onStop}>
        Cancel the upload
      </button>
    </div>
  );
}
