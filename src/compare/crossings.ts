// Can one set of executables check and delete what the other has made, and what does it leave behind?
import type { Conflist } from '../chain/config/conflist.ts';
import { isObject, memberOf } from '../cni/json.ts';
import { holdsAddress } from '../lab/leftovers.ts';
import type { SceneRecord, Sight } from './record.ts';
import { SCENES, type Scene, type Side } from './scene.ts';

/** How one set of executables handled the other set's attachment. */
export interface Crossing {
  readonly scene: string;
  readonly maker: Side;
  readonly verb: 'CHECK' | 'DEL';
  readonly by: Side;
  /** The maker had handed the attachment over first. */
  readonly handedOver: boolean;
  /** Why there is no outcome: the attachment could not be made or handed over. */
  readonly untried?: string;
  /** Plugins that failed, with their messages. */
  readonly fails: readonly string[];
  /** The container's objects that exist after DEL. */
  readonly left: readonly string[];
}

interface Played {
  readonly name: string;
  readonly first: SceneRecord;
  readonly second: SceneRecord;
}

/** True when in this scene one set of executables finishes what the other began. */
export function isCrossing(name: string): boolean {
  return SCENES.some(scene => scene.name === name && scene.crossing);
}

/** The outcomes of the scenes in which both sets of executables handle one attachment. */
export function reportCrossings(list: Conflist, played: readonly Played[]): Crossing[] {
  return played.flatMap(({ name, first, second }) => {
    const scene = SCENES.find(one => one.name === name);
    if (!scene?.crossing) return [];
    const { maker, verb } = scene.crossing;
    const by = maker === 'A' ? 'B' : 'A';
    const record = by === 'A' ? first : second;
    return [{ scene: name, maker, verb, by, ...judge(scene, record, list) }];
  });
}

function judge(
  { steps, crossing }: Scene,
  { before, moments }: SceneRecord,
  list: Conflist,
): Pick<Crossing, 'handedOver' | 'untried' | 'fails' | 'left'> {
  const handedOver = steps.some(({ verb }) => verb === 'hand over');
  const isLast = ({ step }: (typeof moments)[number]) => step === crossing?.verb;
  const failure = moments.find(moment => !isLast(moment) && moment.answer.failed)?.answer;
  if (failure) return { handedOver, untried: failure.message ?? 'no message', fails: [], left: [] };
  const failed = moments.filter(moment => isLast(moment) && moment.answer.failed);
  const ofPlugins = failed.filter(({ index }) => index !== undefined);
  const fails = (ofPlugins.length ? ofPlugins : failed).map(({ index = -1, answer }) => {
    return `${list.plugins[index]?.type ?? 'the chain'}: ${answer.message ?? 'no message'}`;
  });
  const after = moments.at(-1)?.sight;
  const left = after && crossing?.verb === 'DEL' ? listLeft(before, after, addressesOf(moments)) : [];
  return { handedOver, fails, left };
}

/** The id that `play.ts` gives its container. */
const CONTAINER_ID = 'catena-compare-one';
/** The reference's chains named after a container; their rules need not mention it. */
const OWN_CHAIN = /\bCNI-(DN-|SN-)?[0-9a-f]{21,24}\b/;
/** Files of the network: the pointer to the last address, and our index of leases, which no other host-local reads. */
const OF_THE_NETWORK = /\/(\.catena-|last_reserved_ip\.)[^/]*$/;
/** Kinds of objects that appear and disappear with a device. */
const FOLLOWING = ['sysctl', 'address', 'traffic control'];

/** Objects that did not exist before and belong to the container rather than to its network. */
function listLeft(before: Sight, after: Sight, addresses: readonly string[]): string[] {
  const isOwn = (text: string) =>
    text.includes(CONTAINER_ID) || OWN_CHAIN.test(text) || addresses.some(one => holdsAddress(text, one));
  const things = Object.entries(after.places).flatMap(([place, kinds]) =>
    Object.entries(kinds).flatMap(([kind, objects]) =>
      Object.entries(objects).flatMap(([name, state]) => {
        if (FOLLOWING.includes(kind) || before.places[place]?.[kind]?.[name] !== undefined) return [];
        const isDevice = kind === 'link' && state.kind !== 'bridge';
        const words = `${place}: ${kind} ${name}`;
        return isDevice || isOwn(`${name} ${JSON.stringify(state)}`) ? [words] : [];
      }),
    ),
  );
  const files = Object.entries(after.files).flatMap(([path, text]) => {
    return before.files[path] === undefined && !OF_THE_NETWORK.test(path) && isOwn(`${path} ${text}`)
      ? [path]
      : [];
  });
  return [...things, ...files.map(path => `file ${path}`)];
}

function addressesOf(moments: SceneRecord['moments']): string[] {
  const results = moments.flatMap(({ verb, answer }) => (verb === 'ADD' ? (answer.result ?? []) : []));
  const last: unknown = results.at(-1);
  const ips = isObject(last) ? memberOf(last, 'ips') : undefined;
  return (Array.isArray(ips) ? ips : []).flatMap(ip => {
    const address = isObject(ip) ? memberOf(ip, 'address') : undefined;
    return typeof address === 'string' ? [address.split('/')[0] ?? ''] : [];
  });
}
