// What do the verbs do when the disk is full, cannot be written to, or holds what it should not?

import { expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { fullChain } from '../helpers/chain.ts';
import type { Finished } from '../helpers/command.ts';
import { filesBelow, unfinished } from '../helpers/journal.ts';
import { type Container, type Lab, withHost } from '../helpers/netns.ts';
import { IS_SAMPLE } from '../helpers/sample.ts';
import { describeRoot } from '../helpers/skip.ts';
import { mountSmallDisk, type SmallDisk } from '../helpers/small-disk.ts';

// Installed once per host, and empty without attachments.
const SKELETON = { ignoreTables: ['inet catena_masquerade', 'inet catena_portmap'] };
const CAP = JSON.stringify({
  portMappings: [{ hostPort: 8080, containerPort: 80, protocol: 'tcp' }],
  bandwidth: { ingressRate: 1e8, ingressBurst: 1e6, egressRate: 1e8, egressBurst: 1e6 },
});

interface Place {
  readonly lab: Lab;
  readonly disk: SmallDisk;
  readonly container: Container;
  add(container?: Container): Promise<Finished>;
  /** Nothing of an attachment is in the kernel or on the disk. */
  expectNothing(): Promise<void>;
}

async function withDisk(body: (place: Place) => Promise<void>): Promise<void> {
  await withHost(async lab => {
    await lab.sysctl(lab.host, 'net/ipv4/ip_forward', 1);
    await lab.sysctl(lab.host, 'net/ipv6/conf/all/forwarding', 1);
    const disk = await mountSmallDisk(lab, dir => {
      const list = fullChain({ ...lab, tmp: dir });
      return { ...list, plugins: [...(list.plugins as object[]), { type: 'sbr' }] };
    });
    const [container, warm] = [await lab.container(), await lab.container()];
    // Bridge and tables stay when the last container has gone.
    for (const verb of ['add', 'del']) expect(await disk.catena(verb, warm)).toMatchObject({ exitCode: 0 });
    const before = await lab.dump(lab.host, SKELETON);
    await body({
      lab,
      disk,
      container,
      add: (which = container) => disk.catena('add', which, '--cap', CAP),
      async expectNothing() {
        expect(attachmentFiles(disk)).toEqual([]);
        expect(await lab.dump(lab.host, SKELETON)).toEqual(before);
      },
    });
  });
}

/** Files that are there with an attachment, and not without. */
function attachmentFiles(disk: SmallDisk): string[] {
  const kept =
    /(^|\/)(boot|lock|history\/events|[^/]+\.lock|caches\/\w+|ballast|last_reserved_ip\.\d|\.catena-(owners|taken)|gc\/[^/]+)$/;
  return filesBelow(disk.outside('')).filter(file => !kept.test(file));
}

const DONE = { exitCode: 0, stderr: '' };

describeRoot('on a full disk', () => {
  test.each([
    ['pages', 4, async (disk: SmallDisk, free: number) => disk.fill(free)],
    ['files', 6, (disk: SmallDisk, free: number) => disk.limitFiles(free)],
  ])(
    'ADD fails with file, reason and advice, and leaves nothing, however few %s are left',
    async (_, least, leave) => {
      await withDisk(async ({ disk, container, add, expectNothing }) => {
        let points = 0;
        for (let free = 0; free < 40; free++) {
          await leave(disk, free);
          const { exitCode, stderr } = await add();
          if (exitCode === 0) break;
          points++;
          expect(stderr).toMatch(
            /Cannot [a-z' ]+ "\/\S+": ENOSPC: no space left on device.*; free space on its file system/,
          );
          await disk.free();
          await expectNothing();
        }
        expect(points).toBeGreaterThanOrEqual(least);
        await disk.free();
        expect(await disk.catena('del', container)).toMatchObject(DONE);
        await expectNothing();
      });
    },
  );

  test('CHECK, repair and DEL do their work, and others say what is wrong', async () => {
    await withDisk(async ({ disk, container, add, expectNothing }) => {
      expect(await add()).toMatchObject({ exitCode: 0 });
      disk.fill(0);
      expect(await disk.catena('check', container)).toMatchObject(DONE);
      // It writes nothing into the record unless it finds something.
      const repair = await disk.catena('repair');
      expect([repair.exitCode, repair.stdout]).toEqual([0, expect.stringContaining('1 sound')]);
      expect((await disk.catena('doctor')).stdout).toContain('its file system is full');
      expect(await disk.catena('ls')).toMatchObject(DONE);
      const del = await disk.catena('del', container);
      expect([del.exitCode, del.stderr]).toEqual([0, expect.stringContaining('ENOSPC')]);
      await expectNothing();
    });
  });

  test('DEL needs no room for the files of locks', async () => {
    await withDisk(async ({ disk, container, add, expectNothing }) => {
      expect(await add()).toMatchObject({ exitCode: 0 });
      const locks = filesBelow(disk.outside('run')).filter(file => /(^|\/)bridge.*\.lock$/.test(file));
      expect(locks).toHaveLength(1);
      for (const file of locks) fs.rmSync(disk.outside(`run/${file}`));
      await disk.limitFiles(0);
      expect(await disk.catena('del', container)).toMatchObject({ exitCode: 0 });
      await expectNothing();
    });
  });

  test('GC does its work', async () => {
    await withDisk(async ({ disk, add, expectNothing }) => {
      expect(await add()).toMatchObject({ exitCode: 0 });
      disk.fill(0);
      expect(await disk.catena('gc', undefined, '--all')).toMatchObject({ exitCode: 0 });
      await expectNothing();
    });
  });

  test('what was cut off is reported and not waited for, and goes when there is room', async () => {
    await withDisk(async ({ disk, container, add, expectNothing }) => {
      expect(await add()).toMatchObject({ exitCode: 0 });
      // As if the runner had died after the last plugin.
      const entry = disk.outside(`cni/results/podnet-${container.id}-eth0`);
      // The next line of the note would need another page.
      const text = unfinished(entry).trimEnd();
      const note = `${text.padEnd(Math.ceil((text.length + 1) / 4096) * 4096 - 1)}\n`;
      fs.writeFileSync(disk.outside(`state/unsettled/podnet/${container.id}:eth0`), note);
      fs.rmSync(entry);
      disk.fill(0);
      const again = await add();
      expect([again.exitCode, again.stderr]).toEqual([
        1,
        expect.stringContaining('free space on its file system'),
      ]);
      await disk.free();
      expect(await disk.catena('repair')).toMatchObject({
        exitCode: 0,
        stdout: expect.stringContaining('its ADD was interrupted'),
      });
      await expectNothing();
    });
  });
});

describeRoot('on a disk that is read-only', () => {
  test('ADD does nothing, CHECK its work, DEL what it can, and all of it later', async () => {
    await withDisk(async ({ lab, disk, container, add, expectNothing }) => {
      expect(await add()).toMatchObject({ exitCode: 0 });
      const other = await lab.container();
      const before = await lab.dump(lab.host);
      await disk.remount('ro');
      const refused = await add(other);
      expect([refused.exitCode, refused.stderr]).toEqual([
        1,
        expect.stringMatching(/Cannot lock "\S+": EROFS: .*; remount its file system read-write/),
      ]);
      expect(await lab.dump(lab.host)).toEqual(before);
      expect(await disk.catena('check', container)).toMatchObject(DONE);
      expect(await disk.catena('ls')).toMatchObject(DONE);
      expect((await disk.catena('doctor')).stdout).toContain('state.storage');
      expect((await disk.catena('repair')).exitCode).toBe(1);
      expect(await disk.catena('del', other)).toMatchObject({ exitCode: 0 });

      const del = await disk.catena('del', container);
      expect([del.exitCode, del.stderr]).toEqual([
        1,
        expect.stringContaining('remount its file system read-write'),
      ]);
      expect((await lab.ip(lab.host, 'link', 'show', 'type', 'veth')).length).toBe(0);
      expect((await disk.catena('gc', undefined, '--all')).exitCode).toBe(1);
      await disk.remount('rw');
      expect(await disk.catena('del', container)).toMatchObject(DONE);
      await expectNothing();
    });
  });
});

/** What happens to a file. */
const DAMAGE: Readonly<Record<string, (file: string) => void>> = {
  halved: file => fs.truncateSync(file, Math.floor(fs.statSync(file).size / 2)),
  garbled: file => fs.writeFileSync(file, Buffer.from('\0\xff{]\r\n\t'.repeat(50), 'latin1')),
  'a link to nowhere': file => {
    fs.rmSync(file, { force: true });
    fs.symlinkSync('/nowhere/at/all', file);
  },
  'a directory': file => {
    fs.rmSync(file, { force: true });
    fs.mkdirSync(file, { recursive: true });
  },
};

/** With these, verbs that change nothing are tried as well. */
const LOOKED_AT = ['halved', 'a directory'];

const FILES: Readonly<Record<string, (id: string) => string>> = {
  note: id => `state/unsettled/podnet/${id}:eth0`,
  'cached result': id => `cni/results/podnet-${id}-eth0`,
  'boot note': () => 'state/boot',
  'note of another attachment': () => 'state/unsettled/podnet/strange:eth0',
  lease: () => 'leases/podnet/{lease}',
  'last address': () => 'leases/podnet/last_reserved_ip.0',
  'index of owners': () => 'leases/podnet/.catena-owners',
  'lock of the leases': () => 'leases/podnet/lock',
  'unfinished lease': () => 'leases/podnet/.catena-lease',
  'backup of tuning': id => `tuning/${id}_eth0.json`,
};

/** Verbs fail with an error object, or not at all. */
function expectWords(damage: string, { exitCode, stderr }: Finished): void {
  expect([0, 1]).toContain(exitCode);
  expect([damage, stderr]).toEqual([
    damage,
    expect.not.stringMatching(/TypeError|RangeError|SyntaxError|is not a function|undefined is not|\n\s+at /),
  ]);
}

describeRoot('with a file that is damaged', () => {
  test.each(Object.entries(FILES))(
    '%s: verbs go on or say why, and DEL leaves nothing',
    async (name, fileOf) => {
      const at = Object.keys(FILES).indexOf(name);
      const damages = Object.entries(DAMAGE).filter((_, i, { length }) => !IS_SAMPLE || i === at % length);
      await withDisk(async ({ disk, lab, add, expectNothing }) => {
        const [container, other] = [await lab.container(), await lab.container()];
        for (const [damage, apply] of damages) {
          const added = await add(container);
          expect([damage, added.exitCode, added.stderr]).toEqual([damage, 0, '']);
          const lease = JSON.parse(added.stdout).ips[0].address.replace(/\/.*/, '');
          const file = disk.outside(fileOf(container.id).replace('{lease}', lease));
          if (!fs.existsSync(file)) fs.writeFileSync(file, 'something');
          apply(file);
          if (LOOKED_AT.includes(damage)) {
            const looks = [
              ...['ls', 'doctor'].map(verb => disk.catena(verb)),
              disk.catena('check', container),
              disk.catena('gc', undefined, '--dry-run', '--all'),
            ];
            for (const look of await Promise.all(looks)) expectWords(damage, look);
          }
          const second = await disk.catena('add', other);
          expectWords(damage, second);
          if (second.exitCode === 0) expect(await disk.catena('del', other)).toMatchObject({ exitCode: 0 });
          else expect(second.stderr).toContain(path.basename(file));
          const del = await disk.catena('del', container);
          expectWords(damage, del);
          if (del.exitCode !== 0) expect(del.stderr).toContain(path.basename(file));
          fs.rmSync(file, { recursive: true, force: true });
          // What failed is tried again.
          if (del.exitCode + second.exitCode > 0)
            expect(await disk.catena('repair')).toMatchObject({ exitCode: 0, stderr: '' });
          await expectNothing();
        }
      });
    },
  );
});
