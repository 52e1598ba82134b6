/** The sign of this extension: slots that grow. */
import { LabIcon } from '@jupyterlab/ui-components';

export const edtIcon = new LabIcon({
  name: 'jupyter-edt:icon',
  svgstr: `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 16 16">
  <g class="jp-icon3" fill="#616161">
    <rect x="1" y="11" width="3" height="4" rx=".6"/><rect x="5" y="8" width="3" height="7" rx=".6"/>
    <rect x="9" y="4.5" width="3" height="10.5" rx=".6"/><rect x="13" y="1" width="2" height="14" rx=".6" opacity=".55"/>
  </g></svg>`
});
