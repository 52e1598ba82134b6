/** What is asked for of a validation and what one came to, as `openapi.yaml` has it. Times are seconds since the epoch. */

/** One class: how many labels name it, and fractions of what was found of it. */
export interface IClassScores {
  label: number;
  samples: number;
  precision: number;
  recall: number;
  f1: number;
}

/** The result of a validation. */
export interface IValidated {
  /** Id and name of what was validated. */
  training: string;
  training_name: string;
  samples: number;
  /** In the order they were asked for; null for one that is not a number. */
  metrics: Record<string, number | null>;
  /** Metrics of the script's own. */
  own: Record<string, number | null>;
  classes: number | null;
  /** What binary outputs were compared with; null where the highest score counted. */
  threshold: number | null;
  /** Rows are labels, columns what the model said; null where it was not asked for. */
  confusion: number[][] | null;
  per_class: IClassScores[];
  time: number;
}

/** What a validation is asked for; what is left out is as in the training. */
export interface INewValidation {
  metrics: string[];
  threshold: number | null;
  dataset: string | null;
  max_workers: number;
  instance_group: string | null;
}
