// Which kinds of objects do addresses of a whole cluster need?

import type { PrintOptions } from './print-options.ts';

/** API group of the kinds; src/pools/held.ts has the same. */
const GROUP = 'catena.cni.cncf.io';

/** The first release whose tokens name the node of their pod, and that has policies; minor number. */
const POLICIES = 30;

/** The custom resource definitions, and the policy for their objects if the cluster can have one, as YAML. */
export function crds({ kubernetes }: Pick<PrintOptions, 'kubernetes'>): string {
  return `# The kinds of objects of cluster-wide addresses: kubectl apply -f -
${[POOL, BLOCK, ADDRESS].map(render).join('---\n')}${kubernetes < POLICIES ? '' : `---\n${POLICY}`}`;
}

/**
 * The kind of the networks that pods name, as YAML: the Network Custom Resource Definition De-facto Standard, version 1.3, section 3.
 * Its projects each bring the same one.
 */
export function definitions(): string {
  return `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: network-attachment-definitions.k8s.cni.cncf.io }
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names:
    kind: NetworkAttachmentDefinition
    plural: network-attachment-definitions
    singular: network-attachment-definition
    shortNames: [net-attach-def]
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          description: A network that the annotation k8s.v1.cni.cncf.io/networks of a pod may name
          properties:
            spec:
              type: object
              properties:
                config: { type: string, description: A list or a single configuration of CNI as JSON }
---
`;
}

interface CustomKind {
  readonly kind: string;
  readonly plural: string;
  readonly singular: string;
  readonly shortName: string;
  /** What one of them is. */
  readonly about: string;
  /** Name, type and JSON path of what `kubectl get` shows. */
  readonly columns: readonly (readonly [name: string, type: string, path: string])[];
  /** Schema of `spec`, indented. */
  readonly spec: string;
}

function render({ kind, plural, singular, shortName, about, columns, spec }: CustomKind): string {
  const shown = columns.map(
    ([name, type, path]) => `        - { name: ${name}, type: ${type}, jsonPath: "${path}" }\n`,
  );
  return `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: { name: ${plural}.${GROUP} }
spec:
  group: ${GROUP}
  scope: Cluster
  names: { kind: ${kind}, listKind: ${kind}List, plural: ${plural}, singular: ${singular}, shortNames: [${shortName}] }
  versions:
    - name: v1alpha1
      served: true
      storage: true
      additionalPrinterColumns:
${shown.join('')}        - { name: Age, type: date, jsonPath: .metadata.creationTimestamp }
      schema:
        openAPIV3Schema:
          type: object
          description: ${about}
          required: [spec]
          properties:
            spec:
${spec}`;
}

/** The account of the nodes, which all share one: a token of a pod says on which node that runs. */
const ACCOUNT = 'system:serviceaccount:kube-system:catena';
const NODE_CLAIM = 'authentication.kubernetes.io/node-name';
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

const POLICY = `# Which node may write what: of Kubernetes 1.30 and later, where tokens name the node of their pod.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: { name: blocks.${GROUP} }
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - { apiGroups: [${GROUP}], apiVersions: ["*"], operations: [CREATE, UPDATE, DELETE], resources: [blocks, addresses] }
  matchConditions:
    - { name: account-of-the-nodes, expression: "request.userInfo.username == '${ACCOUNT}'" }
  variables:
    - name: me
      expression: "has(request.userInfo.extra) && '${NODE_CLAIM}' in request.userInfo.extra ? request.userInfo.extra['${NODE_CLAIM}'][0] : ''"
  validations:
${RULES.map(
  ([operation, expression, message]) =>
    `    - expression: "request.operation != '${operation}' || (${expression})"\n      message: "${message}"\n`,
).join('')}---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: { name: blocks.${GROUP} }
spec: { policyName: blocks.${GROUP}, validationActions: [Deny] }
`;

const POOL: CustomKind = {
  kind: 'Pool',
  plural: 'pools',
  singular: 'pool',
  shortName: 'catpool',
  about: 'Addresses from which nodes claim blocks.',
  columns: [
    ['Subnets', 'string', '.spec.subnets'],
    ['Block-Size', 'integer', '.spec.blockSize'],
    ['Layout', 'string', '.spec.layout'],
  ],
  spec: `              type: object
              required: [subnets]
              properties:
                subnets:
                  type: array
                  minItems: 1
                  description: Parts of the pool. With both families in one, the blocks of both are claimed together.
                  items:
                    type: object
                    minProperties: 1
                    properties:
                      ipv4: { type: string, pattern: '^[0-9.]+/[0-9]+$' }
                      ipv6: { type: string, pattern: '^[0-9a-fA-F:.]+/[0-9]+$' }
                blockSize:
                  type: integer
                  minimum: 1
                  maximum: 65536
                  description: Addresses in a block, a power of two; 64 unless given. It never changes once a node has claimed a block.
                layout:
                  type: string
                  enum: [routed, flat]
                  description: Whether each block is a subnet of one node, or all addresses are on one link.
                gateways:
                  type: array
                  description: With layout flat, the routers; a subnet reports the one in it, or else the first of its family.
                  items: { type: string }
                exclude:
                  type: array
                  description: What is not handed out, as addresses, subnets, or first and last address joined by a dash.
                  items: { type: string }
`,
};

const HELD_SPEC = `              type: object
              required: [pool, node, network, size, cidrs, ranges]
              properties:
                pool: { type: string }
                node: { type: string, description: The node that hands out the addresses. }
                machine: { type: string, description: The machine that the node is; another one of the name is another node. }
                network: { type: string }
                size: { type: integer }
                cidrs: { type: array, items: { type: string } }
                ranges:
                  type: array
                  description: Addresses that may be handed out, as results report them.
                  items:
                    type: object
                    required: [from, to, prefix]
                    properties:
                      from: { type: string }
                      to: { type: string }
                      prefix: { type: integer }
                      gateway: { type: string }
                orphaned:
                  type: boolean
                  description: The node seems to have vanished. Unless it takes this back, the addresses return to the pool.
                keptFor: { type: string, description: For whom the address is kept when its attachment has ended. }
                keepS: { type: integer, description: Seconds that it is kept; a claim keeps it while it exists. }
                idle: { type: boolean, description: No attachment has the kept address. Any node may take it over. }
                next:
                  type: object
                  description: A machine moves to this node, which has the address as well and gets it when the attachment of the other ends.
                  required: [node, network]
                  properties: { node: { type: string }, machine: { type: string }, network: { type: string } }
                turn: { type: integer, description: How often the kept address has changed hands. }
`;

const HELD_COLUMNS: CustomKind['columns'] = [
  ['Pool', 'string', '.spec.pool'],
  ['Node', 'string', '.spec.node'],
  ['Network', 'string', '.spec.network'],
  ['Addresses', 'string', '.spec.cidrs'],
  ['Orphaned', 'boolean', '.spec.orphaned'],
];

const BLOCK: CustomKind = {
  kind: 'Block',
  plural: 'blocks',
  singular: 'block',
  shortName: 'catblock',
  about: 'Addresses of a pool that one node holds and hands out.',
  columns: HELD_COLUMNS,
  spec: HELD_SPEC,
};

const ADDRESS: CustomKind = {
  kind: 'Address',
  plural: 'addresses',
  singular: 'address',
  shortName: 'cataddr',
  about: 'A single address of a pool, or one of each family, that one node holds.',
  columns: [...HELD_COLUMNS, ['Kept-For', 'string', '.spec.keptFor']],
  spec: HELD_SPEC,
};
