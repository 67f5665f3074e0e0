// Of which images are the pods of a cluster, without a registry?

import fs from 'node:fs';
import { writeImage } from '../helpers/busybox.ts';
import { CATENA } from '../helpers/catena.ts';
import { runOk } from '../helpers/command.ts';
import { withMachine } from '../helpers/machine.ts';
import { startPodman } from '../helpers/podman.ts';

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

/** The image of Catena, made of the printed Containerfile by the command that its first line names. */
export async function catenaImage(dir: string, home: string, tag?: string): Promise<Image> {
  const archive = `${dir}/${tag ?? 'catena'}.tar`;
  const { stdout: text } = await runOk([CATENA, 'install', '--print', 'containerfile']);
  const [, printed = ''] = /--tag (\S+) --file/.exec(text) ?? [];
  const name = tag === undefined ? printed : `${printed.replace(/:.*/, '')}:${tag}`;
  await withMachine(async machine => {
    const podman = await startPodman(machine);
    await podman.run('import', await writeBase(machine.lab.tmp), BASE);
    machine.write('/etc/Containerfile', text);
    await podman.run(
      ...['build', '--pull=never', '--quiet', '--tag', name, '--file', '/etc/Containerfile', home],
    );
    const file = `${machine.lab.tmp}/image-of-catena.tar`;
    await podman.run('save', '--quiet', '--output', file, name);
    fs.copyFileSync(file, archive);
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
  const relative = [...files].map(file => file.slice(1));
  await runOk(['tar', '--dereference', '-cf', archive, '-C', '/', ...relative]);
  return archive;
}
