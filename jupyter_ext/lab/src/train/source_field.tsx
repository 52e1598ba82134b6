/** Where the code is: a path, completed from the server's files while it is written. */

import { useEffect, useId, useState } from 'react';
import type { ReactElement } from 'react';

import type { Contents } from '@jupyterlab/services';

import { Field } from '../page/field';

const MOST = 200;

/** `notebook`: the one that is open, "" for none. */
export function SourceField(props: {
  value: string;
  error: string | undefined;
  contents: Contents.IManager;
  notebook: string;
  onChange: (value: string) => void;
}): ReactElement {
  const { value, contents, notebook } = props;
  const list = useId();
  const folder = value.includes('/') ? value.slice(0, value.lastIndexOf('/')) : '';
  const [choices, setChoices] = useState<readonly string[]>([]);
  const [typing, setTyping] = useState(false);
  // "moo" is not wrong while "moons" is there and the rest is still to come.
  const unfinished = typing && value !== '' && choices.some(path => path !== value && path.startsWith(value));
  useEffect(() => {
    let over = false;
    contents
      .get(folder)
      .then(model => {
        if (!over && model.type === 'directory') {
          setChoices(trainable(model.content as Contents.IModel[]));
        }
      })
      .catch(() => {
        // A folder that there is not has nothing to offer; the preview says what is wrong with it.
        if (!over) {
          setChoices([]);
        }
      });
    return () => {
      over = true;
    };
  }, [contents, folder]);
  return (
    <Field
      label="What to train"
      wide
      error={unfinished ? undefined : props.error}
      hint={
        notebook !== '' && value !== notebook ? (
          <>
            A folder, a script or a notebook, from the file browser&apos;s top on.{' '}
            <button type="button" className="jp-edt-link" onClick={() => props.onChange(notebook)}>
              Use {notebook}
            </button>
          </>
        ) : (
          "A folder, a script or a notebook, from the file browser's top on."
        )
      }
    >
      {input => (
        <>
          <input
            {...input}
            name="source"
            value={value}
            list={list}
            placeholder="project, project/train.py or notebook.ipynb"
            autoComplete="off"
            spellCheck={false}
            onFocus={() => setTyping(true)}
            onBlur={() => setTyping(false)}
            onChange={event => props.onChange(event.target.value)}
          />
          <datalist id={list}>
            {choices.map(path => (
              <option key={path} value={path} />
            ))}
          </datalist>
        </>
      )}
    </Field>
  );
}

function trainable(entries: readonly Contents.IModel[]): string[] {
  return entries
    .filter(entry => entry.type === 'directory' || entry.type === 'notebook' || entry.name.endsWith('.py'))
    .map(entry => entry.path)
    .sort()
    .slice(0, MOST);
}
