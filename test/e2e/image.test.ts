// Is an image made of the printed Containerfile one that runs?
import { expect, setDefaultTimeout, test } from 'bun:test';
import { PROGRAM } from '../helpers/catena.ts';
import { runOk } from '../helpers/command.ts';
import { deadline } from '../helpers/deadline.ts';
import { withMachine } from '../helpers/machine.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { requiresPodman, startPodman } from '../helpers/podman.ts';
import { describeRoot } from '../helpers/skip.ts';

setDefaultTimeout(deadline(180_000));

/** Replaces the image that a registry would bring: the C library of this machine, and nothing else. */
const BASE = 'docker.io/library/debian:stable-slim';

describeRoot(
  'an image of the printed Containerfile',
  () => {
    test('is built without a registry, and its container runs the command', async () => {
      await withMachine(async machine => {
        const podman = await startPodman(machine);
        const { tmp } = machine.lab;
        await podman.run('import', await writeBase(tmp), BASE);
        const { stdout: text } = await runOk([`${BIN_DIR}/catena`, 'install', '--print', 'containerfile']);
        const [, tag = '', home = ''] = /--tag (\S+) --file Containerfile (\S+)/.exec(text) ?? [];
        expect([tag, home]).toEqual([expect.stringMatching(/^localhost\/catena:\d/), BIN_DIR]);
        machine.write('/etc/Containerfile', text);
        await podman.run(
          ...['build', '--pull=never', '--quiet', '--tag', tag, '--file', '/etc/Containerfile', home],
        );
        const cgroup = ['--cgroup-parent', `/${machine.cgroup}`];
        const said = await podman.run('run', '--rm', '--network', 'none', ...cgroup, tag, '--version');
        const { stdout } = await runOk([`${BIN_DIR}/catena`, '--version']);
        expect(said.trim()).toBe(stdout.trim());
      });
    });
  },
  requiresPodman(),
);

async function writeBase(dir: string): Promise<string> {
  const { stdout } = await runOk(['ldd', `${BIN_DIR}/${PROGRAM}`]);
  const libraries = stdout.match(/\/\S+(?= \()/g) ?? [];
  const archive = `${dir}/base.tar`;
  await runOk(['tar', '--dereference', '-cf', archive, '-C', '/', ...libraries.map(file => file.slice(1))]);
  return archive;
}
