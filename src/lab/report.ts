// What does the report about a tried chain contain?

/** A failure, human-readable, with everything that helps to find its cause. */
export interface Failure {
  readonly message: string;
  readonly code?: number;
  readonly details?: string;
  /** Last lines of the plugin's standard error. */
  readonly stderr?: string;
}

/** One plugin's part in a command. */
export interface PluginReport {
  /** Type of the plugin, with the plugins that it delegates to: `bridge + host-local`. */
  readonly link: string;
  readonly durationMs: number;
  /** What it added to the result. */
  readonly result: readonly string[];
  /** What it changed on the host, in the container and in files. */
  readonly host: readonly string[];
  readonly container: readonly string[];
  readonly files: readonly string[];
  readonly failure?: Failure;
}

/** A section of the report, issued as soon as it is known. */
export type Section =
  | {
      readonly kind: 'lab';
      readonly network: string;
      readonly version: string;
      readonly links: number;
      /** True when the lab ran in a user namespace, without root. */
      readonly rootless: boolean;
      readonly durationMs: number;
    }
  | {
      readonly kind: 'verb';
      readonly verb: string;
      readonly durationMs: number;
      readonly links: readonly PluginReport[];
      readonly failure?: Failure;
      /** Why it did not run. */
      readonly skipped?: string;
    }
  /** Probes follow. */
  | { readonly kind: 'probing' }
  | {
      readonly kind: 'probe';
      readonly what: string;
      readonly outcome: 'ok' | 'failed' | 'skipped';
      readonly seen: string;
    }
  | { readonly kind: 'left'; readonly left: readonly string[]; readonly kept: readonly string[] }
  | {
      readonly kind: 'verdict';
      readonly ok: boolean;
      readonly failures: number;
      readonly durationMs: number;
    };

/** True when a section reports a problem. */
export function isProblem(section: Section): boolean {
  if (section.kind === 'verb') return section.failure !== undefined;
  if (section.kind === 'probe') return section.outcome === 'failed';
  return section.kind === 'left' && section.left.length > 0;
}

/** The complete report as one JSON object. */
export function toJson(sections: readonly Section[]) {
  const of = <K extends Section['kind']>(kind: K) =>
    sections.filter((section): section is Extract<Section, { kind: K }> => section.kind === kind);
  const bare = <T extends Section>({ kind: _, ...rest }: T) => rest;
  const verdict = of('verdict')[0];
  return {
    ok: verdict?.ok ?? false,
    ...of('lab').map(bare)[0],
    durationMs: verdict?.durationMs ?? 0,
    verbs: of('verb').map(bare),
    probes: of('probe').map(bare),
    left: of('left').flatMap(({ left }) => left),
    kept: of('left').flatMap(({ kept }) => kept),
  };
}
