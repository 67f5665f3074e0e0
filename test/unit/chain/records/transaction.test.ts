// Does the record of an ADD name the namespace that its interface is in?
import { afterEach, beforeEach, expect, test } from 'bun:test';
import { join } from 'node:path';
import { commit, type PreparedAdd } from '../../../../src/chain/records/transaction.ts';
import { identifyNetns } from '../../../../src/journal/netns-identity.ts';
import { ATTACHMENT, listOf, makeNoopChain, type NoopChain } from '../../../helpers/noop-chain.ts';

let chain: NoopChain;
beforeEach(() => {
  chain = makeNoopChain();
});
afterEach(() => chain.dispose());

test.each([
  ['is the same', '/proc/self/ns/net', true],
  ['has ended', '/run/netns/gone', true],
  ['was replaced by another one', '/proc/self/ns/mnt', false],
])('an ADD whose namespace %s while plugins ran', (_, netns, succeeds) => {
  let isDone = false;
  const commitRecord = () => {
    isDone = true;
  };
  const prepared = {
    list: listOf('1.1.0', [chain.noop('one')]),
    attachment: { ...ATTACHMENT, netns },
    runtime: { ...chain.runtime, stateDir: join(chain.dir, 'state') },
    record: { namespace: identifyNetns('/proc/self/ns/net'), commit: commitRecord },
    earlier: undefined,
  } as unknown as PreparedAdd;
  const end = () => commit(prepared, { cniVersion: '1.1.0' });
  if (succeeds) end();
  else expect(end).toThrow('was replaced by another namespace while plugins ran');
  expect(isDone).toBe(succeeds);
});
