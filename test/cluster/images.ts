// Of which images are the pods of a cluster, without a registry?

import fs from 'node:fs';
import { writeImage } from '../helpers/busybox.ts';
import { CATENA } from '../helpers/catena.ts';
import { runOk } from '../helpers/command.ts';
import { withMachine } from '../helpers/machine.ts';
import { startPodman } from '../helpers/podman.ts';
import { inShell, manual, REPLACEABLE } from './manual.ts';

export { IMAGE as POD_IMAGE } from '../helpers/busybox.ts';

/** Replaces the image that a registry would bring. */
const BASE = 'docker.io/library/debian:stable-slim';
/** What the DaemonSet starts of it. */
const NSENTER = '/usr/bin/nsenter';

/** An archive that containerd imports. */
export interface Image {
  readonly name: string;
  readonly archive: string;
}

/** The image of pods, and of what holds their namespaces. */
export function podImage(dir: string): Promise<string> {
  return writeImage(dir);
}

/** The image of Catena, made by the manual's commands of a directory with executables. */
export async function catenaImage(dir: string, executables: string, tag?: string): Promise<Image> {
  const archive = `${dir}/${tag ?? 'catena'}.tar`;
  const name = tag === undefined ? REPLACEABLE.image : REPLACEABLE.image.replace(/:.*/, `:${tag}`);
  const build = 'podman build --pull=never';
  const commands = manual('image', { executables, image: name, build });
  await withMachine(async machine => {
    const podman = await startPodman(machine);
    await podman.run('import', await writeBase(machine.lab.tmp), BASE);
    await machine.ok(inShell(commands, machine.lab.tmp), { timeoutMs: 150_000 });
    fs.copyFileSync(`${machine.lab.tmp}/${REPLACEABLE.archive}`, archive);
  });
  return { name, archive };
}

/** Two programs' C library, and nsenter, which every Debian has. */
async function writeBase(dir: string): Promise<string> {
  const archive = `${dir}/base.tar`;
  const files = new Set([NSENTER]);
  for (const program of [`${CATENA}-core`, NSENTER]) {
    const { stdout } = await runOk(['ldd', program]);
    for (const file of stdout.match(/\/\S+(?= \()/g) ?? []) files.add(file);
  }
  // With their directories: docker makes those that an archive lacks so that only root with all capabilities enters them.
  const dirs = [...files].flatMap(file => file.split('/').map((_, i, parts) => parts.slice(1, i).join('/')));
  const relative = [...new Set([...dirs.filter(Boolean), ...[...files].map(file => file.slice(1))])];
  await runOk(['tar', '--dereference', '--no-recursion', '-cf', archive, '-C', '/', ...relative]);
  return archive;
}
