// How does the page become one script and one style sheet?
import { join } from 'node:path';
import type { Page } from './server.ts';

/** Bundles the sources of the page, with its library. Run by the build, and by the tool when it runs from sources. */
export async function bundlePage(): Promise<Page> {
  const folder = join(import.meta.dirname, 'page');
  const { outputs } = await Bun.build({
    entrypoints: [join(folder, 'main.tsx'), join(folder, 'style.css')],
    target: 'browser',
    minify: true,
    jsx: { runtime: 'automatic', importSource: 'preact', development: false },
  });
  const textOf = async (extension: string) =>
    (await outputs.find(({ path }) => path.endsWith(extension))?.text()) ?? '';
  return { script: await textOf('.js'), style: await textOf('.css') };
}
