// Is a daemon reported that runs and serves no client?
import { expect, test } from 'bun:test';
import { mkdirSync } from 'node:fs';
import { catena, PROGRAM } from '../helpers/catena.ts';
import { startDaemon } from '../helpers/daemon.ts';
import { wholeLines } from '../helpers/lines.ts';
import { directories, type Lab, useLabs } from '../helpers/netns.ts';
import { BIN_DIR, copyPlugins } from '../helpers/plugin.ts';
import { bridgeOf, stateOf } from '../helpers/plugin-calls.ts';
import { describeRoot } from '../helpers/skip.ts';

describeRoot('calls that a daemon declines', () => {
  const makeLab = useLabs();

  test('because they come from another build are counted, logged and reported by doctor', async () => {
    const lab = await makeLab();
    const log = `${lab.tmp}/log`;
    const daemon = await startDaemon(lab, '--log', `file:${log}`);
    expect(await findings(lab)).toEqual([]);
    // As an installation leaves it: a new file under the old name.
    const binDir = `${lab.tmp}/new`;
    mkdirSync(binDir);
    copyPlugins(['catena', 'bridge'], binDir);
    const container = await lab.container();
    const conf = bridgeOf(lab);
    const call = { conf, container, binDir, cniPath: BIN_DIR };
    for (const command of ['ADD', 'CHECK', 'DEL']) await lab.plugin('bridge', { ...call, command });
    expect(await stateOf(daemon)).toMatchObject({ declined: { build: { count: 3 } } });
    const page = await (await daemon.fetch('/metrics')).text();
    expect(page).toContain('catena_declined_total{reason="build"} 3');
    const lines = wholeLines(log).map(line => JSON.parse(line));
    const told = lines.filter(({ message }) => message.startsWith('declined calls'));
    expect(told).toMatchObject([{ level: 'warn', reason: 'build', calls: 1 }]);
    const found = (await findings(lab, binDir)).join('\n');
    expect(found).toContain(`warning process ${daemon.pid}`);
    expect(found).toContain(
      `is another executable than "${binDir}/${PROGRAM}": it declines calls of that one`,
    );
    expect(found).toContain('3 for "build"');
  });

  test('because they come from another mount namespace are reported by doctor from there', async () => {
    const lab = await makeLab();
    const daemon = await startDaemon(lab);
    const args = ['doctor', '--json', '--conf-dir', lab.tmp, '--bin-dir', BIN_DIR];
    const argv = ['unshare', '--mount', `${BIN_DIR}/catena`, ...args];
    const { stdout } = await lab.run(lab.host, argv, { env: directories(lab.tmp) });
    expect(stdout).toContain(`process ${daemon.pid} is in another mount namespace than this command`);
  });

  test('because it is stopped are reported by doctor, and so is a socket without a daemon', async () => {
    const lab = await makeLab();
    expect(await findings(lab)).toEqual([]);
    const daemon = await startDaemon(lab);
    process.kill(daemon.pid, 'SIGSTOP');
    expect(await findings(lab)).toEqual([
      `warning process ${daemon.pid} (${PROGRAM}) does not respond on "${daemon.socket}" within 1 s: every plugin call waits that long before it works without the daemon`,
    ]);
    process.kill(daemon.pid, 'SIGKILL');
    await daemon.exited;
    expect(await findings(lab)).toEqual([
      `warning no process listens on "${daemon.socket}": its daemon no longer runs`,
    ]);
  });
});

/** What the check `daemon` found wrong. */
async function findings(lab: Lab, binDir = BIN_DIR): Promise<string[]> {
  const args = ['doctor', '--json', '--conf-dir', lab.tmp, '--bin-dir', binDir];
  const { stdout } = await catena(lab, args, { env: directories(lab.tmp) });
  const all = JSON.parse(stdout).findings as { id: string; severity: string; found: string }[];
  return all
    .filter(({ id, severity }) => id === 'daemon' && severity !== 'ok')
    .map(({ severity, found }) => `${severity} ${found}`);
}
