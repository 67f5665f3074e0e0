// Is any output of plugins handled: results, errors, anything else?
import fc from 'fast-check';
import { acceptResult } from '../../../src/chain/run/call-plugins.ts';
import { type CniError, ErrorCode } from '../../../src/cni/errors.ts';
import { failureOf, parseReply } from '../../../src/cni/invocation.ts';
import { convertResult, prevResultOf, SPEC_VERSIONS } from '../../../src/cni/result.ts';
import { door } from '../door.ts';
import { damagedJson, damagedJsonText, strangeText } from '../mutate.ts';
import { answersOrRefuses, checkErrorReply } from '../promise.ts';
import { RESULTS } from '../samples.ts';

const plugin = { network: 'n', type: 'l', index: 0, verb: 'ADD' };
const { incompatibleVersion, decodingFailure, invalidConfig } = ErrorCode;

/** The output of ADD. */
export const result = door({
  name: 'plugin result',
  weight: 12,
  // The error quoted everything that was found.
  seeds: [[JSON.stringify({ ...RESULTS[0], dns: { search: 'y'.repeat(100_000) } }), '1.1.0'] as const],
  arbitrary: fc.tuple(damagedJsonText(RESULTS), fc.constantFrom(...SPEC_VERSIONS)),
  run([stdout, version]) {
    const accepted = answersOrRefuses(
      () => acceptResult(stdout, version, plugin),
      ...[incompatibleVersion, decodingFailure, invalidConfig],
    );
    if (accepted !== undefined && accepted.cniVersion !== version)
      throw new Error(`it stays in "${accepted.cniVersion}"`);
  },
});

/** The result that the next plugin receives. */
export const prevResult = door({
  name: 'prevResult',
  weight: 8,
  seeds: [[{ ...RESULTS[0], routes: new Array(5_000).fill(0) }, '1.1.0', '1.1.0']],
  arbitrary: fc.tuple(
    damagedJson(RESULTS),
    fc.constantFrom(...SPEC_VERSIONS),
    fc.constantFrom(...SPEC_VERSIONS),
  ),
  run([value, from, to]) {
    answersOrRefuses(
      () => prevResultOf({ prevResult: value }, from),
      incompatibleVersion,
      decodingFailure,
      invalidConfig,
    );
    answersOrRefuses(() => convertResult(value, to), incompatibleVersion, decodingFailure, invalidConfig);
  },
});

const ERRORS = [
  { cniVersion: '1.1.0', code: 7, msg: 'no', details: 'because' },
  { code: 999, msg: '' },
  { code: 0, msg: 'zero' },
];

/** The output of a plugin that failed. */
export const failure = door({
  name: 'plugin failure',
  weight: 8,
  // A blank message was passed on unchanged.
  seeds: [{ stdout: '{"code":7,"msg":" "}', stderr: '', exitCode: 1, signal: undefined }],
  arbitrary: fc.record({
    stdout: fc.oneof(damagedJsonText(ERRORS), strangeText),
    stderr: strangeText,
    exitCode: fc.option(fc.nat(255), { nil: undefined }),
    signal: fc.option(fc.constantFrom('SIGKILL', 'SIGSEGV'), { nil: undefined }),
  }),
  run({ stdout, stderr, exitCode, signal }) {
    const outcome = {
      stdout,
      stderr,
      ...(exitCode === undefined ? {} : { exitCode }),
      ...(signal ? { signal } : {}),
    };
    const error: CniError = failureOf(outcome, plugin);
    const reply = error.toReply('1.1.0');
    checkErrorReply(JSON.stringify({ ...reply, code: reply.code || ErrorCode.internal }));
    answersOrRefuses(() => parseReply(stdout, plugin), decodingFailure);
  },
});
