// How is an attachment deleted although a third-party plugin's DEL never succeeds?
import { basename } from 'node:path';
import { findPlugin } from '../chain/config/find-plugin.ts';
import { conclude, IGNORED } from '../chain/run/call-plugins.ts';
import type { ExecOutcome } from '../chain/run/exec-plugin.ts';
import type { Attachment, ChainRuntime } from '../chain/run/runtime.ts';
import { type PluginCall, processSegments, startPlugin } from '../chain/run/segment.ts';
import { keyOf } from '../cni/attachment.ts';
import { CniError, ErrorCode, toCniError } from '../cni/errors.ts';
import { isObject, memberOf } from '../cni/json.ts';
import { asWord } from '../net/interface.ts';
import { isThere } from '../node/devices.ts';
import { readRecords } from '../node/facts.ts';

/** What a plugin answers that is not to be asked, or whose failure does not count. */
const SILENCE: ExecOutcome = { exitCode: 0, stdout: '', stderr: '', durationMs: 0 };

/**
 * DEL of one attachment in which third-party plugins may fail, or be missing; those of this executable may not.
 * @param attachment other attachments that the DEL settles on its way are deleted as usual
 * @param ownTypes the plugins of this executable
 * @param del deletes the attachment with the given runtime
 * @returns what is left behind: the failures, and the interfaces that still exist
 */
export async function forget(
  network: string,
  attachment: Attachment,
  runtime: ChainRuntime,
  ownTypes: readonly string[],
  del: (runtime: ChainRuntime) => Promise<void>,
): Promise<CniError[]> {
  const { containerId, ifname } = attachment;
  const { find = findPlugin, segments = processSegments(startPlugin, runtime.isOwn) } = runtime;
  const interfaces = interfacesOf(keyOf({ ...attachment, network }), runtime);
  const missing = new Map<string, CniError>();
  const left: CniError[] = [];
  const forgive = (type: string, { message, code }: CniError): ExecOutcome => {
    const what = `interface "${ifname}" of container "${containerId}" on network "${network}"`;
    left.push(
      new CniError(code, `Forgot what plugin "${type}" made for ${what}, as its DEL fails: ${message}`),
    );
    return SILENCE;
  };
  const isMeant = ({ env }: PluginCall) =>
    env.CNI_COMMAND === 'DEL' && env.CNI_CONTAINERID === containerId && env.CNI_IFNAME === ifname;
  await del({
    ...runtime,
    find(type, dirs) {
      try {
        return find(type, dirs);
      } catch (error) {
        if (ownTypes.includes(type)) throw error;
        missing.set(type, toCniError(error));
        return type;
      }
    },
    segments: {
      ...segments,
      async *run(segment) {
        const [call] = segment.calls;
        const isForeign = call !== undefined && isMeant(call) && !segments.joins(call.path);
        const absent = isForeign ? missing.get(call.path) : undefined;
        if (absent !== undefined) {
          yield forgive(call?.path ?? '', absent);
          return;
        }
        for await (const outcome of segments.run(segment)) {
          const failure = isForeign ? failureIn(outcome, network, call.path, runtime) : undefined;
          yield failure === undefined ? outcome : forgive(basename(call?.path ?? ''), failure);
        }
      },
    },
  });
  const still = left.length ? interfaces.filter(({ name, sandbox }) => isThere(name, sandbox)) : [];
  return [...left, ...still.map(({ name, sandbox }) => leftBehind(name, sandbox))];
}

function failureIn(
  outcome: ExecOutcome,
  network: string,
  path: string,
  { onPlugin: _, ...runtime }: ChainRuntime,
): CniError | undefined {
  const plugin = { network, type: basename(path), index: 0, verb: 'DEL' };
  try {
    conclude(outcome, { plugin, path, span: undefined }, runtime, IGNORED);
    return undefined;
  } catch (error) {
    return toCniError(error);
  }
}

/** The interfaces in the result of the ADD, as far as it is on record: `sandbox` is empty for those of the host. */
function interfacesOf(key: string, runtime: ChainRuntime) {
  const result = readRecords(runtime).attachments.find(one => keyOf(one) === key)?.result;
  const listed = result === undefined ? undefined : memberOf(result, 'interfaces');
  return (Array.isArray(listed) ? listed : []).flatMap(one => {
    if (!isObject(one) || typeof one.name !== 'string') return [];
    return { name: one.name, sandbox: typeof one.sandbox === 'string' ? one.sandbox : '' };
  });
}

function leftBehind(name: string, sandbox: string): CniError {
  const [where, mend] =
    sandbox === ''
      ? ['on the host', `ip link del ${asWord(name)}`]
      : [`in namespace "${sandbox}"`, `nsenter --net=${asWord(sandbox)} ip link del ${asWord(name)}`];
  return new CniError(
    ErrorCode.unknown,
    `Left behind: interface "${name}" ${where}; if nothing needs it: ${mend}`,
  );
}
