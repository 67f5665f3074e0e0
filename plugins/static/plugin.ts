// What does static do for each verb?
import { decode } from '../../src/cni/json.ts';
import { PluginConfig } from '../../src/cni/schemas.ts';
import { type Call, definePlugin, nothingToDo } from '../../src/plugin/define.ts';
import { requireResult } from '../../src/plugin/steps.ts';
import { StaticConf } from './config.ts';
import { findDifferences, type PlannedAddress, planAddresses, planResult } from './plan.ts';

/** Reports the addresses that the configuration and the runtime name. */
export const plugin = definePlugin({
  name: 'static',
  // Not the full schema: DEL must work even if options are invalid.
  config: PluginConfig,
  netns: 'unused',

  add(call) {
    return planResult(readConf(call), plan(call));
  },

  check(call) {
    const addresses = plan(call);
    const { ips = [] } = requireResult(call, 'Cannot check addresses: the request has no "prevResult"');
    const [difference] = findDifferences(addresses, ips);
    if (difference !== undefined) throw new Error(`Cannot confirm ${difference}`);
  },

  del: nothingToDo('nothing is stored'),
  gc: nothingToDo('nothing is stored'),

  status(call) {
    plan(call);
  },
});

function plan(call: Call): PlannedAddress[] {
  return planAddresses(readConf(call), call.args, call.version);
}

function readConf({ request, network }: Call): StaticConf {
  return decode(StaticConf, request, `configuration of "static" in network "${network}"`);
}
