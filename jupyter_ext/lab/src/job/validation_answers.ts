/** The request for a validation, and its result. */

export type { IClassScores, INewValidation, IValidated } from '../schemas';
