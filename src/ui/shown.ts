// What does the server send to the page, besides the JSON of the commands?
import type { NodeModel } from '../node/model.ts';
import type { RequestRecord } from '../observe/record.ts';

/** `api/node`: what `catena ls` prints, with the health that the last CHECK reported. */
export interface ShownNode extends NodeModel {
  /** ISO time at which the last CHECK of all attachments ended; absent before the first. */
  readonly checkedAt?: string;
  /** Why CHECK could not be run. */
  readonly checkProblem?: string;
}

/** `api/traces`: an array of these. */
export type RequestSummary = Pick<
  RequestRecord,
  'id' | 'verb' | 'network' | 'containerId' | 'ifname' | 'startedAt' | 'durationMs' | 'code'
>;

/** `api/leases`: an array of these, as `catena ipam ls` prints them. */
export interface ShownLease {
  readonly network: string;
  readonly address: string;
  readonly containerID?: string;
  readonly ifname?: string;
  readonly state: 'live' | 'new' | 'unused' | 'unknown';
  readonly evidence: readonly string[];
}

/** `api/log`: `entries` of these, oldest first, as `catena log` prints them. */
export interface ShownEvent {
  /** ISO time. */
  readonly time: string;
  readonly what: string;
  readonly network?: string;
  readonly containerID?: string;
  readonly ifname?: string;
  readonly podNamespace?: string;
  readonly podName?: string;
  readonly by: string;
  /** 0 for success, else an error code of the protocol. */
  readonly code: number;
  readonly message?: string;
  /** Id of its trace. */
  readonly trace?: string;
}
