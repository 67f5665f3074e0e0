import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import fs from 'node:fs';
import path from 'node:path';
import { readAttachment } from '../../../../src/attachments/entries.ts';
import { parsePlugin } from '../../../../src/chain/config/conflist.ts';
import { findNetworkOfAdd } from '../../../../src/chain/records/known-add.ts';
import { addPlugin, checkPlugin, deletePlugin } from '../../../../src/chain/run/one-plugin.ts';
import type { JsonObject } from '../../../../src/cni/json.ts';
import { ATTACHMENT, makeNoopChain, type NoopChain } from '../../../helpers/noop-chain.ts';

let chain: NoopChain;
beforeEach(() => {
  chain = makeNoopChain();
});
afterEach(() => chain.dispose());

const ID = { network: 'single', containerId: 'c1', ifname: 'eth0' };
const RESULT = { cniVersion: '0.4.0', ips: [{ version: '4', address: '10.0.0.2/24' }] };
const textOf = (more: JsonObject = {}) =>
  JSON.stringify(
    chain.noop('one', { ReportResult: RESULT }, { name: 'single', cniVersion: '0.4.0', ...more }),
  );

describe('addPlugin(), checkPlugin(), deletePlugin()', () => {
  test('attach, check and detach, with the bytes of the configuration on record', async () => {
    const text = ` ${textOf({ capabilities: { mac: true } })}\n`;
    const plugin = parsePlugin(text);
    const attachment = { ...ATTACHMENT, capabilityArgs: { mac: 'x', other: 1 } };
    expect<unknown>(await addPlugin(plugin, attachment, chain.runtime)).toEqual(RESULT);
    expect(readAttachment(chain.runtime.cacheDir, ID)).toMatchObject({ source: text, result: RESULT });
    expect(findNetworkOfAdd(ID, chain.runtime)).toEqual(plugin);
    await checkPlugin(plugin, attachment, chain.runtime);
    await deletePlugin(plugin, attachment, chain.runtime);
    expect(chain.calls().map(({ command, request }) => [command, request.prevResult])).toEqual([
      ['ADD', undefined],
      ['CHECK', RESULT],
      ['DEL', RESULT],
    ]);
    expect(chain.calls()[0]?.request).toMatchObject({
      name: 'single',
      cniVersion: '0.4.0',
      runtimeConfig: { mac: 'x' },
    });
    expect(fs.readdirSync(path.join(chain.runtime.cacheDir, 'results'))).toEqual([]);
  });

  test('ignore the keys of a list', async () => {
    const plugin = parsePlugin(textOf({ disableCheck: true, cniVersions: ['1.0.0'], disableGC: true }));
    expect(plugin).toMatchObject({ version: '0.4.0', disableCheck: false, disableGC: false });
    await addPlugin(plugin, ATTACHMENT, chain.runtime);
    await checkPlugin({ ...plugin, disableCheck: true }, ATTACHMENT, chain.runtime);
    expect(chain.calls().map(({ command, request }) => [command, request.cniVersion])).toEqual([
      ['ADD', '0.4.0'],
      ['CHECK', '0.4.0'],
    ]);
  });

  test('undo a failed ADD', async () => {
    const plugin = parsePlugin(textOf());
    chain.rescript('one', { ReportError: 'no', ReportErrorCode: 7 });
    await expect(addPlugin(plugin, ATTACHMENT, chain.runtime)).rejects.toMatchObject({
      code: 7,
      message: 'no',
    });
    expect(chain.order()).toEqual(['ADD one', 'DEL one']);
  });
});
