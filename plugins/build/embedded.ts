// What does the build put into the executable in place of a source file?
import fs from 'node:fs';
import path from 'node:path';
import type { BunPlugin } from 'bun';
import { bundlePage } from '../../src/ui/bundle.ts';
import { renderAnswerSchemas } from './answer-schemas.ts';
import { joinChunks } from './chunks.ts';
import { renderSchemas } from './schemas.ts';

/** Descriptions in schemas come from the sources' comments, which are not part of the executable. */
export const schemasPlugin: BunPlugin = {
  name: 'finished schemas',
  setup(builder) {
    builder.onLoad({ filter: /\/plugins\/build\/published-schemas\.ts$/ }, async () => ({
      loader: 'ts',
      contents: `export const SCHEMAS = ${JSON.stringify(await renderSchemas())};
export const ANSWER_SCHEMAS = ${JSON.stringify(renderAnswerSchemas())};`,
    }));
  },
};

/** The sources of the page are for browsers. It is bundled before: a plugin that began a bundle itself would wait for its own end. */
export async function finishedPage(): Promise<BunPlugin> {
  const contents = `export const PAGE = ${JSON.stringify(await bundlePage())};`;
  return {
    name: 'finished page',
    setup(builder) {
      builder.onLoad({ filter: /\/src\/ui\/bundled-page\.ts$/ }, () => ({ loader: 'ts', contents }));
    },
  };
}

const QUICK_ZOD = path.join(import.meta.dir, 'quick-zod/zod-mini.ts');
const FULL_ZOD = path.join(import.meta.dir, 'quick-zod/full.ts');

/** Zod's place is taken by quick-zod/, which loads zod itself where it is needed. */
export const quickZod: BunPlugin = {
  name: 'quick zod',
  setup(builder) {
    builder.onResolve({ filter: /^zod\/mini$/ }, ({ importer }) => {
      return importer === FULL_ZOD ? undefined : { path: QUICK_ZOD };
    });
  },
};

/** The chunks of chunks.ts, with zod replaced. */
export function chunksPlugin(entry: string): BunPlugin {
  return joinChunks(entry, name => (name === 'zod/mini' ? QUICK_ZOD : undefined));
}

/** The packed package becomes a file inside the executable. */
export function libraryPlugin(file: string): BunPlugin {
  const contents = `export { default as PACKED_LIBRARY } from ${JSON.stringify(path.resolve(file))} with { type: 'file' };`;
  return {
    name: 'packed library',
    setup(builder) {
      builder.onLoad({ filter: /\/src\/cli\/init\/packed-library\.ts$/ }, () => ({ loader: 'ts', contents }));
    },
  };
}

/** The Bun program recognises its front by the digest of its content. */
export function frontPlugin(file: string | undefined): BunPlugin {
  const bytes = file === undefined ? undefined : fs.readFileSync(file);
  const digest = bytes && new Bun.CryptoHasher('sha256').update(bytes).digest('hex');
  const contents = bytes
    ? `export const FRONT = {
  bytes: ${bytes.length},
  sha256: '${digest}',
  digestOf: content => new Bun.CryptoHasher('sha256').update(content).digest('hex'),
};`
    : 'export const FRONT = undefined;';
  return {
    name: 'built front',
    setup(builder) {
      const filter = /\/src\/chain\/config\/front-program\.ts$/;
      builder.onLoad({ filter }, () => ({ loader: 'ts', contents }));
    },
  };
}

/**
 * When loaded, execa creates the process's own standard streams, to recognize them among a child's. Plugins only ever get pipes,
 * so there is nothing to recognize; this saves 1 ms in every start of the tool. The library itself is not modified.
 */
export function streamlessExecaPlugin(): BunPlugin {
  const contents = [
    'export const isStandardStream = () => false;',
    'export const STANDARD_STREAMS = [];',
    "export const STANDARD_STREAMS_ALIASES = ['stdin', 'stdout', 'stderr'];",
    "export const getStreamName = fd => STANDARD_STREAMS_ALIASES[fd] ?? 'stdio[' + fd + ']';",
  ].join('\n');
  return {
    name: 'execa without standard streams',
    setup(builder) {
      const filter = /\/execa\/lib\/utils\/standard-stream\.js$/;
      builder.onLoad({ filter }, ({ path: file }) => {
        const source = fs.readFileSync(file, 'utf8');
        const exported = [...source.matchAll(/^export const (\w+)/gm)].map(([, name]) => name);
        // Another version of execa may export more from this module.
        const known = exported.every(name => contents.includes(`export const ${name} `));
        return { loader: 'js', contents: known ? contents : source };
      });
    },
  };
}
