// What does a node hold of an attachment, whoever has it on record?

/** An attachment that something is there of. */
export interface Traced {
  /** `~` and a digest where nothing tells the whole name. */
  readonly containerId: string;
  readonly ifname: string;
  /** False when all that is known of the container is a digest: DEL cannot be called for it. */
  readonly isNamed: boolean;
  /** What is there, each in words. */
  readonly traces: readonly string[];
  /** Why it must stay unless somebody knows better; undefined when nobody is behind it. */
  readonly inUse: string | undefined;
}
