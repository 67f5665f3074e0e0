// Is no change missed between the notifications that were lost and those that are received again?
import { expect, test } from 'bun:test';
import path from 'node:path';
import { lineReader, within } from '../helpers/lines.ts';
import { useLabs } from '../helpers/netns.ts';
import { describeRoot } from '../helpers/skip.ts';

const PEERS = path.join(import.meta.dirname, '../fixtures/peer-monitor.ts');
const STARVED = path.join(import.meta.dirname, '../fixtures/sources-starved.ts');
const FLOOD = path.join(import.meta.dirname, '../fixtures/monitor-flood.ts');

describeRoot('a monitor of other namespaces', () => {
  const makeLab = useLabs();

  test('hears of other namespaces, and pauses while one of them has too much to say', async () => {
    const lab = await makeLab();
    const container = await lab.container();
    await lab.ip(
      lab.host,
      'link',
      'add',
      'one',
      'type',
      'veth',
      'peer',
      'name',
      'two',
      'netns',
      container.name,
    );
    const listener = lab.start(lab.host, [process.execPath, PEERS]);
    const readLine = lineReader(listener.stdout);
    const nextLine = async (): Promise<string> => {
      const line = await within(25_000, 'a notification', readLine());
      if (line === '') throw new Error('The listener has ended');
      return line;
    };
    expect(await nextLine()).toBe('ready');
    await lab.ip(container, 'link', 'set', 'two', 'up');
    await lab.ip(container, 'addr', 'add', '10.1.0.2/24', 'dev', 'two');
    const [two] = await lab.ip(container, 'link', 'show', 'two');
    const heard: string[] = [];
    const way = (gateway: string) => ['nexthop', 'via', gateway, 'dev', 'two'];
    await lab.ip(container, 'route', 'add', 'default', ...way('10.1.0.1'), ...way('10.1.0.3'));
    await lab.ip(container, 'route', 'del', 'default');
    while (!heard.includes(`route ${two?.ifindex}`)) heard.push(await nextLine());
    await lab.ip(container, 'addr', 'del', '10.1.0.2/24', 'dev', 'two');
    while (!heard.includes(`address ${two?.ifindex}`)) heard.push(await nextLine());
    expect(heard).toContain(`device ${two?.ifindex}`);
    // More than is read at one look.
    listener.kill('SIGSTOP');
    const batch = Array.from({ length: 3_000 }, () =>
      ['add', 'del'].map(verb => `address ${verb} 10.2.0.0/32 dev two`),
    ).flat();
    await lab.run(container, ['ip', '-batch', '-'], { stdin: batch.join('\n') });
    listener.kill('SIGCONT');
    while (!heard.at(-1)?.startsWith('lost')) heard.push(await nextLine());
    // It listens again, and hears of no addition.
    await lab.ip(container, 'addr', 'add', '10.2.0.0/32', 'dev', 'two');
    await lab.ip(container, 'addr', 'del', '10.2.0.0/32', 'dev', 'two');
    for (let line = ''; line !== `address ${two?.ifindex}`; ) line = await nextLine();
  });
});

describeRoot('a monitor whose buffer is too small', () => {
  const makeLab = useLabs();

  test('reports the loss when it listens again, and what changes at that moment is noticed', async () => {
    const lab = await makeLab();
    const { stdout, stderr } = await lab.run(lab.host, [process.execPath, FLOOD], { timeoutMs: 30_000 });
    expect(stderr).toBe('');
    expect(stdout.trim().split('\n')).toEqual([expect.stringContaining('lost: ENOBUFS'), 'noticed']);
  });

  test('says once that it cannot listen, and goes on when it can', async () => {
    const lab = await makeLab();
    const argv = ['prlimit', '--nofile=128', process.execPath, FLOOD, 'starved'];
    const { stdout } = await lab.run(lab.host, argv, { timeoutMs: 30_000 });
    expect(stdout.trim().split('\n')).toEqual([
      expect.stringContaining('interrupted: '),
      expect.stringContaining('lost: ENOBUFS'),
      'noticed',
    ]);
  });
});

describeRoot('the sources of the watch', () => {
  const makeLab = useLabs();

  test('leave no socket open when one of them cannot be opened', async () => {
    const lab = await makeLab();
    const argv = ['prlimit', '--nofile=64', process.execPath, STARVED];
    const { stdout } = await lab.run(lab.host, argv, { timeoutMs: 30_000 });
    expect(stdout.trim().split('\n')).toEqual([
      ...Array(4).fill(expect.stringMatching(/^Cannot (open|read) a netlink socket: /)),
      '0',
    ]);
  });
});
