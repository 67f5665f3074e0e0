// Which scenarios are there, in the order in which they are played?

import type { Scenario } from './scenario.ts';
import { between } from './scenarios/between.ts';
import { definitions } from './scenarios/definitions.ts';
import { deployments } from './scenarios/deployments.ts';
import { figures } from './scenarios/figures.ts';
import { force } from './scenarios/force.ts';
import { fullNode } from './scenarios/full-node.ts';
import { hostPorts } from './scenarios/host-ports.ts';
import { longNames } from './scenarios/long-names.ts';
import { pods } from './scenarios/pods.ts';
import { readiness } from './scenarios/readiness.ts';
import { reboot } from './scenarios/reboot.ts';
import { restarts } from './scenarios/restarts.ts';
import { services } from './scenarios/services.ts';
import { upgrade } from './scenarios/upgrade.ts';

export const SCENARIOS: readonly Scenario[] = [
  pods,
  deployments,
  hostPorts,
  services,
  definitions,
  between,
  readiness,
  ...restarts,
  reboot,
  upgrade,
  force,
  fullNode,
  longNames,
  figures,
];
