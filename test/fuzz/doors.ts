// Through which doors does input enter?
import type { AnyDoor } from './door.ts';
import * as daemon from './doors/daemon.ts';
import * as dhcp from './doors/dhcp.ts';
import * as environment from './doors/environment.ts';
import * as executables from './doors/executables.ts';
import * as host from './doors/host-files.ts';
import * as leases from './doors/leases.ts';
import * as lists from './doors/lists.ts';
import * as netlink from './doors/netlink.ts';
import * as records from './doors/records.ts';
import * as replies from './doors/replies.ts';
import { requests } from './doors/requests.ts';
import * as running from './doors/running-daemon.ts';
import * as stdin from './doors/stdin.ts';
import * as texts from './doors/texts.ts';

/** All doors, in the order in which they are listed. */
export const DOORS: readonly AnyDoor[] = [
  ...[environment.environment, environment.cniArgs, environment.traceParent],
  ...[lists.list, lists.listFile, lists.definition, lists.definitionObject],
  ...[replies.result, replies.prevResult, replies.failure],
  ...[records.journal, records.journalFile, records.cache, records.settings, records.backup, records.device],
  records.traces,
  ...[host.runtimeConfig, host.candidates, host.notes, host.kubeletNotes, host.kubeconfig],
  leases.leases,
  ...[dhcp.packets, dhcp.options, dhcp.messages6, dhcp.advertisements, dhcp.notes],
  ...[netlink.replies, netlink.messages, netlink.legacyRules, netlink.savedRules, netlink.clock],
  requests,
  ...[texts.annotation, texts.subnetFile, texts.resolvConf, texts.allowlist, texts.sysctls, texts.conditions],
  ...[texts.ranges, texts.addresses, texts.logWords],
  ...[stdin.request, stdin.noise],
  ...[daemon.grpcMessages, daemon.workerLines, daemon.socketBytes],
  ...[executables.links, executables.command, running.calls, running.grpc],
];
