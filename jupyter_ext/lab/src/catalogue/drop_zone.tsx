/** Files of the person's own machine: chosen with two buttons, or dropped; what was chosen is told. */

import { useRef, useState } from 'react';
import type { DragEvent, ReactElement } from 'react';

import { bytes, count } from '../words';

import { ofDrop, ofInput } from './chosen_files';
import type { Chosen } from './chosen_files';

const NAMED = 3;

/** `error` is what is wrong with the choice, "" for nothing. */
export function DropZone(props: {
  chosen: Chosen | null;
  error: string;
  disabled: boolean;
  onChoose: (chosen: Chosen) => void;
}): ReactElement {
  const { chosen, disabled, onChoose } = props;
  const files = useRef<HTMLInputElement>(null);
  const folder = useRef<HTMLInputElement>(null);
  const [over, setOver] = useState(false);
  const [failed, setFailed] = useState('');
  const drop = (event: DragEvent): void => {
    event.preventDefault();
    setOver(false);
    if (!disabled) {
      setFailed('');
      ofDrop(event.dataTransfer).then(onChoose, () => setFailed('What was dropped cannot be read.'));
    }
  };
  const input = (ref: typeof files, label: string, more: object): ReactElement => (
    <input
      ref={ref}
      type="file"
      multiple
      hidden
      aria-label={label}
      {...more}
      onChange={event => {
        if (event.target.files !== null && event.target.files.length > 0) {
          setFailed('');
          onChoose(ofInput(event.target.files));
        }
        event.target.value = ''; // so that the same choice counts again
      }}
    />
  );
  const wrong = failed || props.error;
  return (
    <div
      className={`jp-edt-drop jp-mod-wide${over ? ' jp-mod-over' : ''}${wrong === '' ? '' : ' jp-mod-wrong'}`}
      role="group"
      aria-label="Files to upload"
      onDragOver={event => {
        event.preventDefault();
        setOver(!disabled);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={drop}
    >
      <div className="jp-edt-toolbar">
        <button type="button" className="jp-edt-button" disabled={disabled} onClick={() => files.current?.click()}>
          Choose files …
        </button>
        <button type="button" className="jp-edt-button" disabled={disabled} onClick={() => folder.current?.click()}>
          Choose a folder …
        </button>
        <span className="jp-edt-hint">or drop them here. A .zip or .tar.gz is unpacked.</span>
      </div>
      {input(files, 'Files', {})}
      {input(folder, 'Folder', { webkitdirectory: '' })}
      <div role="status">{chosen !== null && told(chosen)}</div>
      <div className="jp-edt-field-error" role="alert">
        {wrong === '' ? '' : `✕ ${wrong}`}
      </div>
    </div>
  );
}

function told(chosen: Chosen): string {
  const { entries } = chosen;
  const names = entries.slice(0, NAMED).map(({ name }) => name);
  const more = entries.length > NAMED ? ' …' : '';
  return `${count(entries.length, 'file')}, ${bytes(chosen.bytes)}: ${names.join(', ')}${more}`;
}
