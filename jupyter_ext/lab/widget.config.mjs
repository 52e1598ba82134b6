/** Bundles the widget of monitors, an ES module with all it needs: `node widget.config.mjs <output file>`, after `tsc`. */
import { readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { rspack } from '@rspack/core';

const here = dirname(fileURLToPath(import.meta.url));
const output = resolve(process.argv[2]);
const names = readFileSync(join(here, 'style/index.css'), 'utf8').matchAll(/url\('(.*?)'\)/g);
const sheets = [...names].map(([, name]) => name).concat('own_theme.css');
writeFileSync(
  join(here, 'lib/monitor/widget.css'),
  sheets.map(name => readFileSync(join(here, 'style', name), 'utf8')).join('\n')
);

rspack(
  {
    mode: 'production',
    context: here,
    entry: './lib/monitor/widget.js',
    devtool: false,
    performance: { hints: false },
    module: { rules: [{ test: /\.css$/, type: 'asset/source' }] },
    output: {
      path: dirname(output),
      filename: basename(output),
      module: true,
      chunkFormat: 'module',
      library: { type: 'modern-module' }
    }
  },
  (error, stats) => {
    if (error !== null || stats.hasErrors()) {
      console.error(error ?? stats.toString({ colors: false }));
      process.exit(1);
    }
  }
);
