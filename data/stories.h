// The built-in corpus: endless short stories for children, drawn from a small probabilistic grammar.
//
// It measures whether a trainer learns, not only whether it runs. The -ln p of every choice that made a story is added
// up, so the entropy of the text is known exactly: a perfect model reaches a loss of this sum / the number of tokens,
// and no model goes below it. This floor is exact because no two derivations give the same text:
//
//   At each choice the texts that the alternatives can begin with are prefix-free: none is the beginning of another.
//   So a reader who knows the choices made so far sees from the text at hand which alternative was taken. By induction
//   the text gives back every choice, and also where the story ends: predicting the end-of-text token costs nothing.
//
// The notation. A rule has alternatives, separated by '|', from the commonest to the rarest: the i-th of n has weight
// n - i. `<rule>` stands for a new choice from that rule. A rule whose name is in capitals is remembered: its first use
// in a story chooses, later ones repeat the choice, which a model can predict only from far back in the text. The
// alternatives of HERO and FRIEND are by turns male and female: `<HERO.he>`, `.his`, `.him`, `.He`, `.His` are the
// fitting pronouns. References are never joined to letters, so that a word lies within one alternative.
// No rule leads back to itself, hence stories and the number of places within the grammar are finite.
#pragma once
#include "../llmc/base/base.h"

typedef struct {
    const char *name, *text;
} StoryRule;

enum { STORY_NUM_RULES = 70, STORY_MAX_CHOICES = 4096 };

// The grammar; the first rule is the story.
extern const StoryRule STORY_RULES[STORY_NUM_RULES];

// ---------------------------------------------------------------------------------------------------------------------
// reading the notation

// A piece of an alternative: literal text, or a reference (length 0) to a rule, or to a pronoun for it.
typedef struct {
    const char* literal;
    size_t length;
    int rule;
    const char* pronoun[2]; // male and female; NULL if the rule itself is meant
} StorySymbol;

// Returns true if the rule's first choice in a story is kept for the rest of it.
bool story_is_remembered(int rule);

// Returns the number of the rule's alternatives.
size_t story_count(int rule);

// Returns the beginning of alternative i, which ends at '|' or at the end of the string.
const char* story_alternative(int rule, size_t i);

// Returns the probability of alternative i.
double story_probability(int rule, size_t i);

// Takes the next symbol of an alternative from *text. Returns false at its end. Ends the program on a reference to a
// rule that does not exist.
bool story_next(const char** text, StorySymbol* symbol);

// ---------------------------------------------------------------------------------------------------------------------
// making stories

// Appends story number `index` of the corpus `seed` to `out`, and adds the -ln p of its choices to *nll. The story is a
// function of (seed, index) alone.
void story_make(uint64_t seed, uint64_t index, Buffer* out, double* nll);

// ---------------------------------------------------------------------------------------------------------------------
// what a short context costs

// Returns an upper bound H, in nats, of what is lost when a text is read from some point on and not from its beginning.
//
// All that the past of a text tells about its future is the state S of the generator: the place within the grammar, and
// what is remembered. So the T tokens X of a window, seen without their past, cost
//     H(X) <= H(S) + H(X | S) = H(S) + T * floor,
// the last by stationarity, and a best predictor that sees only the window reaches a loss within [floor, floor + H/T]
// per token. H(S) is at most the logarithm of the number of states: ln(places + 1), where 1 is for the end-of-text,
// plus ln(number of alternatives) for each remembered rule. This holds for bytes and for GPT-2's tokens, which are
// whole words or parts of one: how much of a word has been read is a part of the place, since no word spans two
// symbols.
double story_state_entropy(void);
