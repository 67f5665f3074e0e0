// What exists at one moment on the fake host, in a container and among the files?

import type { Place } from './lab.ts';
import { readAddresses } from './state/addresses.ts';
import { readDevices } from './state/devices.ts';
import { readFiles } from './state/files.ts';
import { readNft } from './state/nft.ts';
import { type State, stateOf } from './state/object.ts';
import { readRoutes } from './state/routes.ts';
import { readRules } from './state/rules.ts';
import { readSysctls } from './state/sysctls.ts';
import { readTrafficControl } from './state/traffic-control.ts';

/** The state of the lab at one moment. */
export interface Snapshot {
  readonly host: State;
  readonly container: State;
  readonly files: State;
}

/** What a snapshot includes. */
export interface Scope {
  readonly host: Place;
  readonly container: Place;
  /** Kernel parameters that the configuration names, as paths below /proc/sys. */
  readonly sysctls: readonly string[];
  /** Directories that were empty when the lab began, and paths in them that plugins have not created. */
  readonly files: { readonly dirs: readonly string[]; readonly skip: readonly string[] };
}

/** Reads everything; takes a few milliseconds and runs no other program. */
export function takeSnapshot({ host, container, sysctls, files }: Scope): Snapshot {
  return {
    host: readPlace(host, sysctls),
    container: readPlace(container, sysctls),
    files: stateOf(readFiles(files.dirs, files.skip)),
  };
}

/** Everything in one namespace. */
export function readPlace({ netns, route, netfilter }: Place, sysctls: readonly string[]): State {
  const { objects, nameOf } = readDevices(route);
  return stateOf([
    ...objects,
    ...readAddresses(route, nameOf),
    ...readRoutes(route, nameOf),
    ...readRules(route),
    ...readTrafficControl(route, nameOf),
    ...readNft(netfilter),
    ...readSysctls(netns, sysctls),
  ]);
}
