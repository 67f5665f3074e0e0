// What does firewall do for each verb?
import { type FilterOwner, filterOwnerOf } from '../../src/attach/handle.ts';
import { attachmentOf, validAttachmentsOf } from '../../src/attach/owner.ts';
import { CniError, ErrorCode } from '../../src/cni/errors.ts';
import { renderTable } from '../../src/netlink/nft/message.ts';
import { listDroppingChains } from '../../src/netlink/nft/policy.ts';
import { type Call, definePlugin } from '../../src/plugin/define.ts';
import { FirewallConf, type FirewallOptions, parseFirewallConf } from './config.ts';
import { admit, tryAdmission } from './kernel/admit.ts';
import { shutOut, sweep } from './kernel/release.ts';
import { checkAdmission } from './kernel/verify.ts';
import { type AccessPlan, planAccess } from './plan.ts';

/** Lets packets to and from the pod pass, and says who may come to it. */
export const firewall = definePlugin({
  name: 'firewall',
  config: FirewallConf,
  since: '0.4.0',
  netns: 'required',

  add(call) {
    const plan = planOf(call);
    const { prevResult = {} } = call;
    if (plan.pods.length === 0) return prevResult;
    const owner = ownerOf(call);
    admit(call.hostNft, plan, owner);
    call.onFailure('remove the rules', () => shutOut(call.hostNft, owner));
    return prevResult;
  },

  check(call) {
    const plan = planOf(call);
    if (plan.pods.length === 0) return;
    checkAdmission(call.hostNft, plan, ownerOf(call));
    warnOfDroppingChains(call);
  },

  del(call) {
    shutOut(call.hostNft, ownerOf(call));
  },

  gc(call) {
    const valid = validAttachmentsOf(call);
    if (valid === undefined) return;
    sweep(call.hostNft, call.network, new Set(valid.map(one => filterOwnerOf(one).note)));
  },

  status(call) {
    const { policy } = optionsOf(call);
    try {
      tryAdmission(call.hostNft, policy);
    } catch (cause) {
      throw new CniError(ErrorCode.unavailable, `Cannot let packets pass: ${(cause as Error).message}`, {
        cause,
      });
    }
    warnOfDroppingChains(call);
  },
});

function planOf(call: Call<FirewallConf>): AccessPlan {
  const { policy } = optionsOf(call);
  if (call.prevResult === undefined) {
    throw new CniError(
      ErrorCode.invalidConfig,
      'Cannot let packets pass: the request has no "prevResult"; put this link behind one that gives the pod an address',
    );
  }
  return planAccess(call.prevResult, policy);
}

function optionsOf(call: Call<FirewallConf>): FirewallOptions {
  const options = parseFirewallConf(call.conf);
  if (options.backend !== 'iptables') return options;
  throw new CniError(
    ErrorCode.unsupportedField,
    'Cannot use "backend": "iptables": this release programs nf_tables only',
    { details: 'leave "backend" out, or use another firewall executable for this network' },
  );
}

function ownerOf(call: Call): FilterOwner {
  return filterOwnerOf(attachmentOf(call));
}

/** A packet has to get past every table: what a host drops by itself, no rule of ours lets pass. */
function warnOfDroppingChains(call: Call): void {
  for (const { table, chain } of listDroppingChains(call.hostNft, 'forward')) {
    call.log.warn(
      `chain "${chain}" of table ${renderTable(table)} drops forwarded packets that its own rules do not accept`,
      { hint: 'packets of pods pass only if a rule there accepts them' },
    );
  }
}
