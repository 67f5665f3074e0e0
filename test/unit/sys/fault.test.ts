// Does the variable make one request of an executable fail, and only then?
import { expect, test } from 'bun:test';
import { FAULT_NOTE } from '../../../src/sys/fault.ts';

const PROGRAM = `
  import { faultAt } from '${import.meta.dir}/../../../src/sys/fault.ts';
  console.log(JSON.stringify(['one', 'two', 'two', 'three'].map(what => faultAt(() => what) ?? 0)));
`;

function runWith(fault: string | undefined) {
  const env = { PATH: process.env.PATH ?? '', ...(fault === undefined ? {} : { CATENA_FAULT: fault }) };
  const { stdout, stderr } = Bun.spawnSync([process.execPath, '-e', PROGRAM], { env });
  return { answers: JSON.parse(stdout.toString()), stderr: stderr.toString() };
}

test('faultAt() fails the request that CATENA_FAULT names, and says so', () => {
  const { answers, stderr } = runWith('kernel:2');
  expect(answers).toEqual([0, 5, 0, 0]);
  expect(FAULT_NOTE.exec(stderr)?.slice(1)).toEqual(['2', 'two']);
});

test.each([undefined, '', 'kernel:', 'kernel:x', 'disk:2', 'kernel:9'])(
  'faultAt() fails nothing for %j',
  fault => {
    expect(runWith(fault)).toEqual({ answers: [0, 0, 0, 0], stderr: '' });
  },
);

test('faultAt() counts a repeated question once', () => {
  expect(runWith('kernel:3').answers).toEqual([0, 0, 0, 5]);
});
