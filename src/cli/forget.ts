// How is an attachment deleted although a third-party plugin's DEL never succeeds?
import { basename } from 'node:path';
import { findPlugin } from '../chain/config/find-plugin.ts';
import { conclude, IGNORED } from '../chain/run/call-plugins.ts';
import type { ExecOutcome } from '../chain/run/exec-plugin.ts';
import { type Attachment, type ChainRuntime, withRecordedDirs } from '../chain/run/runtime.ts';
import { type PluginCall, processSegments, type Segment, startPlugin } from '../chain/run/segment.ts';
import { keyOf } from '../cni/attachment.ts';
import { attempt, CniError, ErrorCode, toCniError } from '../cni/errors.ts';
import { objectIn } from '../cni/invocation.ts';
import { type JsonObject, objectsIn } from '../cni/json.ts';
import { ipamTypeIn } from '../cni/plugin-about.ts';
import { asWord } from '../net/interface.ts';
import { isThere } from '../node/devices.ts';
import { readRecords } from '../node/facts.ts';

/** What a plugin answers that is not to be asked, or whose failure does not count. */
const SILENCE: ExecOutcome = { exitCode: 0, stdout: '', stderr: '', durationMs: 0 };

/**
 * DEL of one attachment in which third-party plugins may fail, or be missing, and IPAM plugins that ours call; those of this executable
 * may not.
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
  const key = keyOf({ ...attachment, network });
  const known = readRecords(runtime).attachments.find(one => keyOf(one) === key);
  const interfaces = interfacesOf(known?.result);
  const left: CniError[] = [];
  // A delegate of the runner is in a journal of its own.
  const { stateDir = runtime.stateDir } = known ?? {};
  await del(
    forgiving(known ? { ...withRecordedDirs(runtime, known), stateDir } : runtime, {
      network,
      ownTypes,
      isMeant: ({ env }) =>
        env.CNI_COMMAND === 'DEL' && env.CNI_CONTAINERID === containerId && env.CNI_IFNAME === ifname,
      forgive(type, { message, code }) {
        const what = `interface "${ifname}" of container "${containerId}" on network "${network}"`;
        left.push(
          new CniError(code, `Forgot what plugin "${type}" made for ${what}, as its DEL fails: ${message}`),
        );
        return SILENCE;
      },
    }),
  );
  const still = left.length ? interfaces.filter(({ name, sandbox }) => isThere(name, sandbox)) : [];
  return [...left, ...still.map(({ name, sandbox }) => leftBehind(name, sandbox))];
}

interface Forgiveness {
  readonly network: string;
  readonly ownTypes: readonly string[];
  isMeant(call: PluginCall): boolean;
  forgive(type: string, failure: CniError): ExecOutcome;
}

/**
 * A runtime in which calls that are meant succeed although a third-party plugin fails. It calls a third-party IPAM plugin itself, since the
 * plugin of ours that names it would fail with it.
 */
function forgiving(
  runtime: ChainRuntime,
  { network, ownTypes, isMeant, forgive }: Forgiveness,
): ChainRuntime {
  const { find = findPlugin, segments = processSegments(startPlugin, runtime.isOwn) } = runtime;
  const missing = new Map<string, CniError>();
  const ipams: { readonly type: string; readonly segment: Segment }[] = [];
  const findOrNote: typeof find = (type, dirs) => {
    try {
      return find(type, dirs);
    } catch (error) {
      if (ownTypes.includes(type)) throw error;
      missing.set(type, toCniError(error));
      return type;
    }
  };
  async function* callForeign(segment: Segment): AsyncGenerator<ExecOutcome> {
    const [{ path }] = segment.calls as [PluginCall];
    const absent = missing.get(path);
    if (absent) return yield forgive(path, absent);
    for await (const outcome of segments.run(segment)) {
      const failure = failureIn(outcome, network, path, runtime);
      yield failure === undefined ? outcome : forgive(basename(path), failure);
    }
  }
  return {
    ...runtime,
    find: findOrNote,
    segments: {
      joins: segments.joins,
      async *run(segment) {
        const [first] = segment.calls;
        if (first === undefined || !isMeant(first)) yield* segments.run(segment);
        else if (!segments.joins(first.path)) yield* callForeign(segment);
        else {
          const calls = segment.calls.map(call => {
            const request = objectIn(call.stdin) ?? {};
            const type = ipamTypeIn(request);
            const path = type && attempt(() => find(type, runtime.pluginDirs));
            if (!type || (path ? segments.joins(path) : ownTypes.includes(type))) return call;
            ipams.push({ type, segment: { ...segment, calls: [call] } });
            return { ...call, stdin: JSON.stringify({ ...request, ipam: {} }) };
          });
          yield* segments.run({ ...segment, calls });
        }
      },
      // An address must not be released while anything may have it.
      async finish() {
        const outcome = await segments.finish?.();
        if (outcome !== undefined && outcome.exitCode !== 0) return outcome;
        for (const { type, segment } of ipams.splice(0)) {
          const calls = segment.calls.map(call => ({ ...call, path: findOrNote(type, runtime.pluginDirs) }));
          for await (const _ of callForeign({ ...segment, calls }));
        }
        return outcome;
      },
    },
  };
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
function interfacesOf(result: JsonObject | undefined) {
  return objectsIn(result, 'interfaces').flatMap(({ name, sandbox }) =>
    typeof name === 'string' ? { name, sandbox: typeof sandbox === 'string' ? sandbox : '' } : [],
  );
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
