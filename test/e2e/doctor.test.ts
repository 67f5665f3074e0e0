// Does the doctor find what is wrong with a node, and say what mends it?
import { expect, test } from 'bun:test';
import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { catena } from '../helpers/catena.ts';
import { fullChain, writeChain } from '../helpers/chain.ts';
import { directories, type Row, useLabs } from '../helpers/netns.ts';
import { BIN_DIR } from '../helpers/plugin.ts';
import { describeRoot } from '../helpers/skip.ts';

describeRoot('catena doctor', () => {
  const makeLab = useLabs();

  test('examines the node it runs on, and fails on errors', async () => {
    const lab = await makeLab();
    const env = directories(lab.tmp);
    const args = ['doctor', '--conf-dir', lab.tmp, '--bin-dir', BIN_DIR];
    const none = await catena(lab, args, { env });
    expect(none.exitCode).toBe(1);
    expect(none.stdout).toContain('error    configuration.shadowed: there is no network');
    const chain = writeChain(lab, fullChain(lab));
    mkdirSync(`${lab.tmp}/run`, { recursive: true });
    const container = await lab.container();
    await chain.add(container);
    expect(await catena(lab, args, { env })).toMatchObject({ exitCode: 0 });
    await lab.remove(container);
    const { stdout } = await catena(lab, [...args, '--json'], { env });
    const found = JSON.parse(stdout).findings.find(({ id }: Row) => id === 'state.abandoned');
    expect(found).toMatchObject({ severity: 'warning', mend: 'catena gc --gone' });
    await lab.ip(lab.host, 'link', 'add', 'vpn0', 'type', 'bridge');
    await lab.ip(lab.host, 'link', 'set', 'vpn0', 'up');
    await lab.ip(lab.host, 'route', 'add', '10.88.7.0/24', 'dev', 'vpn0');
    const overlapping = await catena(lab, args, { env });
    expect(overlapping.stdout).toContain('warning  network.subnet-overlap: subnet 10.88.0.0/16');
  });

  test('asks what runtimes ask: whether the plugins of each network are ready', async () => {
    const lab = await makeLab();
    const binDir = `${lab.tmp}/bin`;
    mkdirSync(binDir);
    for (const name of readdirSync(BIN_DIR)) symlinkSync(`${BIN_DIR}/${name}`, `${binDir}/${name}`);
    const install = (name: string, code: number, msg: string) => {
      const reply = JSON.stringify({ cniVersion: '1.1.0', code, msg });
      const script = `#!/bin/sh\n[ "$CNI_COMMAND" = STATUS ] && echo '${reply}' && exit 1\n`;
      writeFileSync(`${binDir}/${name}`, script, { mode: 0o755 });
      const list = { cniVersion: '1.1.0', name: `net-${name}`, plugins: [{ type: name }] };
      writeFileSync(`${lab.tmp}/${name}.conflist`, JSON.stringify(list));
    };
    install('unready', 50, 'no kernel module "unready"');
    install('limited', 51, 'nothing renews leases');
    writeChain(lab, fullChain(lab));
    mkdirSync(`${lab.tmp}/run`, { recursive: true });
    const args = ['doctor', '--json', '--conf-dir', lab.tmp, '--bin-dir', binDir];
    const { stdout, exitCode } = await catena(lab, args, { env: directories(lab.tmp) });
    const found: Row[] = JSON.parse(stdout).findings.filter(({ id }: Row) => id === 'network.status');
    expect(found.map(({ severity, found, mend }) => [severity, found, mend])).toEqual([
      [
        'error',
        'network "net-unready" is not ready, so its ADD fails: no kernel module "unready"',
        'do what plugin "unready" says; "catena status net-unready" asks it again',
      ],
      [
        'warning',
        'network "net-limited" is ready with limits: nothing renews leases',
        'do what plugin "limited" says; "catena status net-limited" asks it again',
      ],
    ]);
    expect(exitCode).toBe(1);
  });

  test('sees what is wrong beside many CHECKs that hang, and says which do, and so does ls --check', async () => {
    const lab = await makeLab();
    const binDir = `${lab.tmp}/bin`;
    mkdirSync(binDir);
    for (const name of readdirSync(BIN_DIR)) symlinkSync(`${BIN_DIR}/${name}`, `${binDir}/${name}`);
    const hangs =
      '#!/bin/sh\n[ "$CNI_COMMAND" = CHECK ] && exec sleep 600\necho \'{"cniVersion": "1.1.0"}\'\n';
    writeFileSync(`${binDir}/stuck`, hangs, { mode: 0o755 });
    const stuck = writeChain(lab, { cniVersion: '1.1.0', name: 'a-stuck', plugins: [{ type: 'stuck' }] });
    // As many as would take all turns three times over.
    const hanging = await Promise.all(Array.from({ length: 13 }, () => lab.container()));
    for (const one of hanging)
      expect(await stuck.run('add', one, { binDir })).toMatchObject({ exitCode: 0, stderr: '' });
    const chain = writeChain(lab, fullChain(lab));
    const [sound, broken] = [await lab.container(), await lab.container()];
    for (const one of [sound, broken]) await chain.add(one);
    await lab.run(broken, ['ip', 'link', 'set', 'eth0', 'down']);
    mkdirSync(`${lab.tmp}/run`, { recursive: true });
    const args = ['doctor', '--json', '--conf-dir', lab.tmp, '--bin-dir', binDir];
    const listing = ['ls', '--check', '--json', '--conf-dir', lab.tmp, '--bin-dir', binDir];
    const ask = (argv: string[]) => catena(lab, argv, { env: directories(lab.tmp) });
    const [{ stdout }, listed] = await Promise.all([ask(args), ask(listing)]);
    const healthOf = (id: string) =>
      JSON.parse(listed.stdout).attachments.find(({ containerId }: Row) => containerId === id)?.health?.state;
    expect([sound, broken, ...hanging].map(({ id }) => healthOf(id))).toEqual([
      'sound',
      'broken',
      ...hanging.map(() => 'unknown'),
    ]);
    const found: Row[] = JSON.parse(stdout).findings.filter(({ id }: Row) => id === 'attachments');
    expect(found.map(({ severity }) => severity)).toEqual(['error', 'unexamined', 'unexamined']);
    expect(found[0]?.found).toContain(`of container "${broken.id}" on network "podnet"`);
    expect(found[1]?.found).toMatch(/of network "a-stuck" cannot be checked: .* did not answer/);
    expect(found[2]?.found).toMatch(/of network "a-stuck" cannot be checked: .* before its turn came/);
  });
});
