// Which kinds of objects do addresses of a whole cluster need?

import { type Blanks, fillBlanks } from '../fill-blanks.ts';
import type { PrintOptions } from './print-options.ts';
import held from './texts/held.yaml.txt' with { type: 'text' };
import policy from './texts/policy.yaml.txt' with { type: 'text' };
import pool from './texts/pool.yaml.txt' with { type: 'text' };

/** The first release whose tokens name the node of their pod, and that has policies; minor number. */
const POLICIES = 30;

/** The custom resource definitions, and the policy for their objects if the cluster can have one, as YAML. */
export function crds({ kubernetes }: Pick<PrintOptions, 'kubernetes'>): string {
  const kinds = [pool, ...HELD.map(words => fillBlanks(held, words))];
  const rules = RULES.map(
    ([operation, expression, message]) =>
      `    - expression: "request.operation != '${operation}' || (${expression})"\n      message: "${message}"`,
  );
  const all = kubernetes < POLICIES ? kinds : [...kinds, fillBlanks(policy, { rules: rules.join('\n') })];
  return `# The kinds of objects of cluster-wide addresses: kubectl apply -f -\n${all.join('---\n')}`;
}

/** What nodes hold of a pool: the same, but for these words of their text. */
const HELD: readonly Blanks[] = [
  {
    ...{ kind: 'Block', plural: 'blocks', singular: 'block', shortName: 'catblock', more: '' },
    about: 'Addresses of a pool that one node holds and hands out.',
  },
  {
    ...{ kind: 'Address', plural: 'addresses', singular: 'address', shortName: 'cataddr' },
    more: '        - { name: Kept-For, type: string, jsonPath: ".spec.keptFor" }\n',
    about: 'A single address of a pool, or one of each family, that one node holds.',
  },
];

// All nodes share one account: a token of a pod says on which node that runs, which the policy calls `me`.
const isMine = (object: string) => `${object}.spec.node == variables.me`;
const bears = (object: string, mark: string) => `(has(${object}.spec.${mark}) && ${object}.spec.${mark})`;
const isNext = (object: string) => `(has(${object}.spec.next) && ${object}.spec.next.node == variables.me)`;
const isSame = (mark: string) => `(${bears('object', mark)}) == (${bears('oldObject', mark)})`;
/** A node that joins the owner, or leaves it, changes nothing else. */
const JOINS = `(${isNext('object')} || ${isNext('oldObject')}) && ${isSame('idle')} && ${isSame('orphaned')} && has(object.spec.keptFor) && object.spec.keptFor == oldObject.spec.keptFor`;
/** The owner's attachment has ended, or the owner has vanished: the one that has joined gets the address. */
const HANDED_ON = `has(oldObject.spec.next) && object.spec.node == oldObject.spec.next.node && (${isMine('oldObject')} || ${bears('oldObject', 'orphaned')})`;
const isFree = `${bears('oldObject', 'idle')} || ${bears('oldObject', 'orphaned')}`;

/** By operation, what must hold of a block that a node writes. */
const RULES: readonly (readonly [operation: string, expression: string, message: string])[] = [
  ['CREATE', isMine('object'), 'a node claims addresses for itself only'],
  [
    'UPDATE',
    ['pool', 'size', 'cidrs', 'ranges']
      .map(key => `object.spec.${key} == oldObject.spec.${key}`)
      .join(' && '),
    'the addresses of a block never change',
  ],
  [
    'UPDATE',
    `object.spec.node == oldObject.spec.node || (${isMine('object')} && (${isFree} || ${isMine('oldObject')})) || (${HANDED_ON})`,
    'a node takes over only addresses that are idle or whose node has vanished',
  ],
  [
    'UPDATE',
    `${isMine('object')} || ${isMine('oldObject')} || ${bears('object', 'orphaned')} || (${HANDED_ON}) || (${JOINS})`,
    "a node changes nothing of another's blocks but the mark of one that has vanished",
  ],
  [
    'DELETE',
    `${isMine('oldObject')} || ${bears('oldObject', 'orphaned')}`,
    "a node deletes another's blocks only when that has vanished",
  ],
];
