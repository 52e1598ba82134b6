/** Icons of pages, in the theme's colours: a bar that grows, a lens, four slots, a stack, two curves, a table, two machines. */

import { LabIcon } from '@jupyterlab/ui-components';

function icon(name: string, drawing: string): LabIcon {
  return new LabIcon({
    name: `jupyter-edt:${name}`,
    svgstr:
      '<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">' +
      `<g class="jp-icon3" fill="#616161">${drawing}</g></svg>`
  });
}

export const jobIcon = icon(
  'job',
  '<path d="M3 15h4v6H3zM10 10h4v11h-4zM17 4h4v17h-4z"/>'
);
export const searchIcon = icon(
  'search',
  '<path d="M10 3a7 7 0 1 0 4.200 12.600l4.600 4.600 1.400-1.400-4.600-4.600A7 7 0 0 0 10 3zm0 2a5 5 0 1 1 0 10 5 5 0 0 1 0-10z"/>'
);
export const clusterIcon = icon(
  'cluster',
  '<path d="M3 3h8v8H3zM13 3h8v8h-8zM3 13h8v8H3zM13 13h8v8h-8z"/>'
);
export const catalogueIcon = icon(
  'catalogue',
  '<path d="M12 2 2 7l10 5 10-5zM2 11.5l10 5 10-5v2.3l-10 5-10-5zM2 16l10 5 10-5v2.3l-10 5-10-5z"/>'
);
export const trainIcon = icon(
  'train',
  '<path d="M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20zm-2.5 5.5 7 4.5-7 4.5z"/>'
);
export const hostsIcon = icon(
  'hosts',
  '<path d="M3 3h18v8H3zm2 2v4h14V5zM3 13h18v8H3zm2 2v4h14v-4zM7 6h3v2H7zM7 16h3v2H7z"/>'
);
export const experimentsIcon = icon(
  'experiments',
  '<path d="M3 4h18v4H3zM3 10h5v4H3zM10 10h11v4H10zM3 16h5v4H3zM10 16h11v4H10z"/>'
);
export const compareIcon = icon(
  'compare',
  '<path d="M3 4h2v15h16v2H3zm4 2.6 1.6-1.2C11 9 14 10.500 21 11v2C13.200 12.500 9.700 10.500 7 6.600zm0 5L8.600 10.400C11 14.500 14 15.700 21 16v2C13.200 17.700 9.700 15.700 7 11.600z"/>'
);
