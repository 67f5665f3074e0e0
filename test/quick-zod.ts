// Do the sources work with what stands in for zod in the executables? Unit tests find out when they preload this (run.ts).
import fs from 'node:fs';
import { plugin } from 'bun';

await plugin({
  name: 'quick zod',
  setup(builder) {
    // What stands in for zod needs zod itself, under another name.
    builder.onLoad({ filter: /\/quick-zod\/full\.ts$/ }, ({ path }) => ({
      loader: 'ts',
      contents: fs.readFileSync(path, 'utf8').replace('zod/mini', 'zod/v4-mini'),
    }));
    builder.module('zod/mini', async () => ({
      loader: 'object',
      exports: { ...(await import('../plugins/build/quick-zod/zod-mini.ts')) },
    }));
  },
});
