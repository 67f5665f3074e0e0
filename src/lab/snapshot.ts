// What exists at one moment on the fake host, in a container and among the files?

import { askOn, Tables } from '../netlink/tables.ts';
import type { Netns } from '../sys/netns.ts';
import type { Place } from './lab.ts';
import { describeDevices } from './state/devices.ts';
import { readFiles } from './state/files.ts';
import { describeNft } from './state/nft.ts';
import { type State, stateOf } from './state/object.ts';
import { readSysctls } from './state/sysctls.ts';

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
    host: readPlace(new Tables(askOn(host)), host.netns, sysctls),
    container: readPlace(new Tables(askOn(container)), container.netns, sysctls),
    files: stateOf(readFiles(files.dirs, files.skip)),
  };
}

/** Everything in one namespace. @param sysctls to include, besides those that turn a host into a router */
export function readPlace(tables: Tables, netns: Netns, sysctls: readonly string[]): State {
  return stateOf([...describeDevices(tables), ...describeNft(tables), ...readSysctls(netns, sysctls)]);
}
