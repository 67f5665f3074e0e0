// Which scenarios are there, in the order in which they are played?

import type { Scenario } from './scenario.ts';
import { away } from './scenarios/away.ts';
import { bandwidth } from './scenarios/bandwidth.ts';
import { between } from './scenarios/between.ts';
import { churn } from './scenarios/churn.ts';
import { claims } from './scenarios/claims.ts';
import { definitions } from './scenarios/definitions.ts';
import { deployments } from './scenarios/deployments.ts';
import { devices } from './scenarios/devices.ts';
import { dockershim } from './scenarios/dockershim.ts';
import { drain } from './scenarios/drain.ts';
import { figures } from './scenarios/figures.ts';
import { force } from './scenarios/force.ts';
import { fullNode } from './scenarios/full-node.ts';
import { handover } from './scenarios/handover.ts';
import { hostPorts } from './scenarios/host-ports.ts';
import { longNames } from './scenarios/long-names.ts';
import { migrations } from './scenarios/migrations.ts';
import { pods } from './scenarios/pods.ts';
import { readiness } from './scenarios/readiness.ts';
import { reboot } from './scenarios/reboot.ts';
import { restarts } from './scenarios/restarts.ts';
import { services } from './scenarios/services.ts';
import { leaveMultus } from './scenarios/switch.ts';
import { tenants } from './scenarios/tenants.ts';
import { uninstall } from './scenarios/uninstall.ts';
import { upgrade } from './scenarios/upgrade.ts';

export const SCENARIOS: readonly Scenario[] = [
  pods,
  deployments,
  hostPorts,
  services,
  bandwidth,
  definitions,
  tenants,
  claims,
  readiness,
  ...restarts,
  reboot,
  drain,
  upgrade,
  force,
  fullNode,
  longNames,
  handover,
  leaveMultus,
  away,
  dockershim,
  between,
  churn,
  migrations,
  devices,
  figures,
  uninstall,
];
