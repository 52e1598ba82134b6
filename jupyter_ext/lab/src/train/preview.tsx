/** What would be sent and when it would start, before anything is. */

import type { ReactElement } from 'react';

import { Forecast } from '../page/forecast';
import { bytes, count } from '../words';

import type { IPreview } from './answers';

const MOST = 200;

/** `fresh` is false while a newer one is on its way. */
export function Preview(props: { of: IPreview; fresh: boolean }): ReactElement {
  const { of } = props;
  const files = [...of.files].sort((a, b) => Number(b.name === of.main) - Number(a.name === of.main));
  return (
    <section className={props.fresh ? 'jp-edt-preview' : 'jp-edt-preview jp-mod-stale'} aria-label="Preview">
      <Forecast text={of.forecast.text} />
      <details open>
        <summary>
          Packed: {count(of.files.length, 'file')}, {bytes(of.size)}
        </summary>
        <div className="jp-edt-scroll">
          <table className="jp-edt-table">
            <thead>
              <tr>
                <th scope="col">File</th>
                <th scope="col" className="jp-mod-number">
                  Size
                </th>
              </tr>
            </thead>
            <tbody>
              {files.slice(0, MOST).map(file => (
                <tr key={file.name}>
                  <th scope="row">
                    {file.name}
                    {file.name === of.main && <span className="jp-edt-hint"> — the script that is run</span>}
                  </th>
                  <td className="jp-mod-number">{bytes(file.size)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
        {files.length > MOST && <p className="jp-edt-hint">… and {count(files.length - MOST, 'more file')}.</p>}
      </details>
      {of.notes.length > 0 && (
        <ul className="jp-edt-notes">
          {of.notes.map(note => (
            <li key={note}>{note}</li>
          ))}
        </ul>
      )}
    </section>
  );
}
