// Which nodes does a file or a directory describe, for hosts without a cluster?
import { type FSWatcher, readdirSync, readFileSync, statSync, watch } from 'node:fs';
import { dirname, join } from 'node:path';
import type { NodeEvents, NodeSource } from './claims.ts';
import { parseNodes } from './note.ts';

/** Several files are often written one after the other. */
const GATHER_MS = 50;
/** How often the files are read even if nothing was noticed: a directory that did not exist cannot be watched. */
const LOOK_EVERY_MS = 2_000;

/**
 * Reads a file, or every `*.json` of a directory, whenever something changes there. While one of them cannot be used, nothing is told
 * but the problem: a file that is being written must not remove its node.
 */
export function openFilesSource(path: string, events: NodeEvents): NodeSource {
  let told = '';
  let problem = '';
  let watcher: { readonly inode: number; readonly end: FSWatcher } | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const look = (): void => {
    follow();
    try {
      const texts = readTexts(path);
      const text = JSON.stringify(texts);
      problem = '';
      if (text === told) return;
      const nodes = texts.flatMap(([file, content]) => parseNodes(content, file));
      told = text;
      events.nodes(nodes);
    } catch (error) {
      const { message } = error as Error;
      if (message !== problem) events.problem(message);
      problem = message;
    }
  };
  const soon = (): void => {
    timer ??= setTimeout(() => {
      timer = undefined;
      look();
    }, GATHER_MS);
  };
  // A directory that was replaced is another one, of which the former watcher says nothing.
  const follow = (): void => {
    const found = statSync(path, { throwIfNoEntry: false });
    const dir = found?.isDirectory() ? path : dirname(path);
    const inode = statSync(dir, { throwIfNoEntry: false })?.ino;
    if (inode === watcher?.inode) return;
    watcher?.end.close();
    watcher = undefined;
    if (inode === undefined) return;
    try {
      const end = watch(dir, { persistent: false }, soon);
      end.on('error', () => {});
      watcher = { inode, end };
    } catch {
      // Without inotify, as when its instances are used up, the files are read every LOOK_EVERY_MS.
    }
  };
  const looking = setInterval(look, LOOK_EVERY_MS);
  looking.unref();
  // Those who open it have to have the source before it tells them anything.
  timer = setTimeout(() => {
    timer = undefined;
    look();
  }, 0);
  return {
    close() {
      clearInterval(looking);
      clearTimeout(timer);
      watcher?.end.close();
    },
  };
}

function readTexts(path: string): [file: string, content: string][] {
  if (!statSync(path).isDirectory()) return [[path, readFileSync(path, 'utf8')]];
  const names = readdirSync(path).filter(name => name.endsWith('.json') && !name.startsWith('.'));
  return names.sort().map(name => [join(path, name), readFileSync(join(path, name), 'utf8')]);
}
