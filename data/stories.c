#include "stories.h"
#include "../llmc/base/rng.h"

const StoryRule STORY_RULES[STORY_NUM_RULES] = {
    {"story", "<once> a <nature>, <nature> <KIND> called <HERO> lived <home>. <HERO.He> loved to <play>, to <rest> and "
              "to <play>, but most of all <HERO.he> loved a <COLOR> <THING> from <HERO.his> <family>.\n<plot>"},
    {"once", "Once upon a time,|Long ago,|Many years ago,|In a <mood> land far away,|One <fine> <season>,"},
    {"home", "in a <cosy> <house> near the <PLACE>|by the <PLACE>, under a <tall> <tree>|with <HERO.his> <family> in a "
             "<cosy> <house>"},
    {"plot", "One <fine> <daytime>, <lost>|On a <fine> <daytime> in <season>, <stuck>|Then, one <daytime>, <gift>|When "
             "<season> came, <astray>"},

    // The four plots: a beginning, a problem, somebody who helps, a turn.
    {"lost", "the <COLOR> <THING> was gone. <HERO> looked <beside> the <cosy> <furniture>, <beside> the <garden> and "
             "<beside> the <tall> <tree>, but found only <money> and a <COLOUR2> <garment>. <HERO.He> <wept> and felt "
             "<sad>.\n<meet> \"<hello>!\" said <FRIEND> <softly>. \"My <THING> is lost,\" said <HERO> <softly>. "
             "\"<plea>\"\n<FRIEND> <pondered>. \"<advice>\" So they walked <along> the <cosy> <road> to the <PLACE>. "
             "<way> <patience> At last <HERO> looked <SPOT>, and there was the <COLOR> <THING>, <dirty> and <dirty>! "
             "<thanks>\n<ending> And from that <daytime> on, <HERO> never left the <THING> <SPOT> again."},
    {"stuck", "<HERO> took the <COLOR> <THING> to the <PLACE>. <way> Suddenly <HERO.he> <stumbled>, and the <THING> "
              "flew <SPOT>, where nobody could reach it. <HERO.He> <wept> and felt <sad>.\n<meet> \"<hello>!\" said "
              "<FRIEND> <softly>. \"My <THING> is <SPOT>,\" said <HERO> <softly>. \"<plea>\"\n<FRIEND> <pondered>. "
              "\"<advice>\" They took a <tall> <tool> from the <garden>. <HERO> <pulled>, <FRIEND> <pulled>, and both "
              "<pulled>. <patience> At last the <COLOR> <THING> was free, <dirty> and <dirty>! <thanks>\n<ending> And "
              "from that <daytime> on, <HERO> kept the <THING> in a <cosy> <box>."},
    {"gift", "<HERO> <heard> that <FRIEND>, a <nature> old <BEAST>, felt <sad> and <sad>. <HERO.He> <pondered>. Then "
             "<HERO.he> <cleaned> the <COLOR> <THING>, put it in a <cosy> <box> with <money>, and made some <taste> "
             "<cake> with a <nature> <passerby>.\n<HERO> walked <along> the <cosy> <road> to the <PLACE>. <way> "
             "\"<hello>!\" said <HERO> <softly>. <FRIEND> opened the <box> and found the <COLOR> <THING>. <FRIEND.He> "
             "<smiled>. \"But it is your own <THING>!\" said <FRIEND> <softly>. \"<generous>\" said <HERO>.\nThey ate "
             "the <taste> <cake> <beside> the <tall> <tree>, and <FRIEND> <danced>. <ending> And from that <daytime> "
             "on, <FRIEND> kept the <THING> <SPOT> and was never <sad> again."},
    {"astray", "<HERO> put the <COLOR> <THING> in a <cosy> <box> and went to see the <tall> <sight> behind the "
               "<PLACE>. <way> But soon a <fierce>, <fierce> <storm> came, and <HERO> hid <SPOT>. <HERO.He> <wept> and "
               "felt <sad>.\n<meet> \"<hello>!\" said <FRIEND> <softly>. \"I have only my <THING> here,\" said <HERO> "
               "<softly>. \"<plea>\"\n<FRIEND> <pondered>. \"<advice>\" <FRIEND.He> gave <HERO.him> a <COLOUR2> "
               "<garment> and some <taste> <cake>. They walked <along> the <cosy> <road>. <patience> At last they came "
               "to the <tall> <tree>, where <HERO.his> <family> <pondered>. <thanks>\n<ending> And from that <daytime> "
               "on, <HERO> never hid <SPOT> again without a <COLOUR2> <garment>."},

    // Sentences that plots share.
    {"meet", "Just then, a <nature>, <nature> old <BEAST> called <FRIEND> came <along> the <cosy> <road>.|After "
             "<awhile>, <HERO> met <FRIEND>, a <nature> old <BEAST> with some <taste> <cake>.|But <FRIEND>, a <nature> "
             "old <BEAST> from the <tall> <tree>, <heard> everything."},
    {"hello", "Good <daytime>, my <calm> friend|Hello, you look <sad>|Oh dear|What a <fine> <daytime>|Well, well"},
    {"plea", "Can you help me, <calm> friend?|Please, who can <manage>?|I tried to <manage>, but I am <sad>.|Will you "
             "stay with me, or must I be <sad>?"},
    {"advice", "Do not be <sad>, we will <manage> or <manage>.|Let us be <calm> and <calm>, then we will "
               "<manage>.|When I was young, I was <sad> and <sad>, until I learned to <manage>.|A friend in need must "
               "never be <sad>."},
    {"way", "There was a <nature> <passerby> with a <COLOUR2> <garment>, and <number> <mood> <birds> <danced> <beside> "
            "a <tall> <tree>.|A <nature> <passerby> <danced> with <number> <mood> <birds> <beside> a <cosy> "
            "<house>.|From a <cosy> <house> came a <nature> <passerby>, a <nature> <KIND> and <number> <mood> "
            "<birds>."},
    {"patience", "It took <awhile>, and <number> <mood> <birds> <danced>.|They tried <awhile>, and <FRIEND> sang a "
                 "<mood>, <mood> song.|<HERO> was <tired> and <tired>, but <HERO.he> did not give up."},
    {"thanks", "\"Thank you, <FRIEND>!\" said <HERO> <softly> and <smiled>.|<HERO> <smiled> and <smiled>. \"You are a "
               "<calm> friend, <FRIEND>!\"|They <danced> and <danced> until <FRIEND> was <tired>."},
    {"generous", "A <calm> friend is better than any <mood> toy,|You can play with it every <daytime>,|I know that you "
                 "are <calm>,"},
    {"ending", "In the evening, <HERO> told <HERO.his> <family> <softly> about <FRIEND> and the <COLOR> <THING>.|That "
               "night, <HERO> dreamed of <number> <mood> <birds> in a <tall> <tree>.|The next <daytime>, <HERO> and "
               "<FRIEND> <danced> in the <PLACE> and ate <taste> <cake>.|<HERO> was a <calm> and <calm> <KIND> now."},

    // Names and things that a story uses again.
    {"HERO", "Tim|Lily|Ben|Mia|Sam|Rosie|Max|Daisy|Leo|Bella|Toby|Molly|Jack|Poppy|Finn|Ruby|Oscar|Clara|Hugo|Nora"},
    {"KIND", "rabbit|fox|bear|mouse|duck|kitten|puppy|frog|hedgehog|squirrel|goat|lamb|pony|badger|beaver|mole"},
    {"FRIEND", "Otto|Greta|Bruno|Wilma|Felix|Hazel|Gus|Olive|Karl|Edith|Rufus|Martha"},
    {"BEAST", "owl|crow|turtle|toad|goose|horse|donkey|heron|cat|snail|otter|deer"},
    {"PLACE", "forest|river|meadow|lake|village|hill|pond|beach|orchard|valley"},
    {"COLOR", "red|blue|yellow|green|golden|silver|purple|striped"},
    {"THING", "kite|ball|boat|drum|hat|bell|lantern|spoon|whistle|basket|book|ring|key|doll|flute|teapot"},
    {"COLOUR2", "white|black|brown|pink|grey|spotted"},
    {"SPOT", "under the bridge|behind the barn|in the tall grass|beside the well|between two stones|near the old mill|"
             "on top of the wall|inside a hollow log"},

    // Words.
    {"mood", "happy|funny|merry|silly|quiet|gentle|jolly|cheerful|soft|strange|dreamy|secret|brave|tender|lovely|"
             "wild"},
    {"nature", "little|small|kind|young|clever|shy|brave|curious|friendly|sleepy|polite|lazy|proud|busy|tidy|careful|"
               "noisy|grumpy|patient|playful|hungry|cheeky|modest|bold"},
    {"season", "spring|summer|autumn|winter"},
    {"cosy", "cosy|tiny|crooked|warm|round|wooden|narrow|bright|dusty|mossy|snug|leafy|painted|stony|hidden|lonely"},
    {"house", "house|hut|cottage|burrow|cave|nest|den|tent|cabin|tower"},
    {"tall", "tall|huge|great|strong|twisted|broken|shady|thick|famous|slender|beautiful|rusty|mighty|golden|curved|"
             "pale"},
    {"tree", "oak|pine|willow|birch|apple tree|pear tree|beech|maple|chestnut|elm|fir|cherry tree|hazel|lime tree"},
    {"family", "mother|father|grandmother|grandfather|sister|brother|aunt|uncle|cousin"},
    {"play", "climb trees|sing songs|paint pictures|chase butterflies|build towers|dance in the rain|run races|skip|"
             "jump over puddles|make music|look for shells|fly kites"},
    {"rest", "sleep in the sun|count the stars|listen to stories|drink warm milk|watch the clouds|pick flowers|"
             "eat berries|read books|talk to the birds|feed the fish|bake bread|help in the garden"},
    {"fine", "sunny|bright|windy|cold|warm|cloudy|foggy|rainy|quiet|busy|frosty|lovely"},
    {"daytime", "morning|day|afternoon|evening|Monday|Sunday|Friday|Saturday"},
    {"beside", "under|behind|beside|near|on|in front of|next to|around"},
    {"furniture", "bed|table|chair|door|stove|clock|cupboard|mirror|window|lamp|rug|shelf"},
    {"garden", "fence|gate|roses|bushes|wall|shed|steps|hedge|pump|cabbages|beehive|ladder"},
    {"wept", "sat down|began to cry|sighed|stamped <HERO.his> feet|hid <HERO.his> face|called for help|stood "
             "still|shook <HERO.his> head"},
    {"sad", "sad|lonely|worried|unhappy|cold|afraid|gloomy|hopeless|upset|miserable|troubled|lost"},
    {"pondered", "thought for a moment|nodded|scratched <HERO.his> nose|smiled a little|looked at the sky|took a deep "
                 "breath|closed both eyes|walked in a circle"},
    {"along", "along|down|up|across"},
    {"road", "road|path|track|lane|street|steps|stream|hedge"},
    {"passerby", "farmer|baker|postman|shepherd|miller|fisherman|sailor|tailor|painter|gardener|king|queen"},
    {"garment", "scarf|coat|blanket|glove|sock|cloak|shawl|jacket|towel|apron|cap|ribbon"},
    {"dirty", "dirty|wet|dusty|muddy|scratched|sticky|cold|bent|covered with leaves|full of sand"},
    {"stumbled", "tripped over a <tall> root|slipped on a <cosy> stone|fell into a <cosy> puddle|bumped into a <tall> "
                 "<tree>"},
    {"tool", "ladder|stick|rope|pole|net|branch|hook|plank"},
    {"pulled", "pulled|pushed|shook it|climbed up|jumped|blew|counted to ten|turned it"},
    {"heard", "heard|noticed|understood|knew|was told"},
    {"money", "two coins|a button|one penny|some string|a feather|three nuts|an old sock|a pebble"},
    {"cleaned", "washed|polished|painted|mended|brushed|dried"},
    {"taste", "sweet|fresh|warm|crunchy|tasty|delicious|big|simple|fine|creamy"},
    {"cake", "cake|pie|bread|pudding|soup|porridge|cheese|jam|honey|biscuit"},
    {"smiled", "smiled|laughed|clapped|jumped for joy|blushed|cheered|sang|danced in a circle"},
    {"sight", "mountain|castle|waterfall|tower|windmill|lighthouse|rainbow|statue|ship|ruin"},
    {"fierce", "fierce|sudden|terrible|loud|wild|heavy|cold|howling"},
    {"storm", "storm|rain|wind|fog|thunder|hail"},
    {"manage", "find a way|think of something|try again|look everywhere|make it right|ask the birds|be brave|do it"},
    {"softly", "softly|loudly|kindly|gently|slowly|sadly|gladly|proudly|quickly|shyly|wisely|calmly"},
    {"number", "two|three|four|five|six|seven|ten|twelve|some|many|fifteen|a hundred"},
    {"birds", "birds|bees|butterflies|chickens|sheep|ants|cows|parrots|swallows|pigs|swans|moths"},
    {"box", "box|bag|chest|drawer|jar|sack|pocket|suitcase"},
    {"calm", "calm|kind|good|brave|clever|happy|patient|gentle|wise|true"},
    {"awhile", "an hour|a long time|all day|most of the day|until noon|half the night"},
    {"tired", "tired|hungry|thirsty|sleepy|weary|cold|dizzy|quiet"},
    {"danced", "danced|sang|played|laughed|ran about|told stories|jumped|rested"},
};

// ---------------------------------------------------------------------------------------------------------------------
// reading the notation

static const char* const STORY_PRONOUNS[][2] = {
    {"he", "she"}, {"his", "her"}, {"him", "her"}, {"He", "She"}, {"His", "Her"}};

static bool story_same(const char* text, size_t length, const char* word) {
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

bool story_is_remembered(int rule) {
    return STORY_RULES[rule].name[0] >= 'A' && STORY_RULES[rule].name[0] <= 'Z';
}

size_t story_count(int rule) {
    size_t n = 1;
    for (const char* c = STORY_RULES[rule].text; *c; c++) { n += *c == '|'; }
    return n;
}

const char* story_alternative(int rule, size_t i) {
    const char* text = STORY_RULES[rule].text;
    for (; i > 0; i--) { text = strchr(text, '|') + 1; }
    return text;
}

double story_probability(int rule, size_t i) {
    double n = (double)story_count(rule);
    return (n - (double)i) / (n * (n + 1) / 2);
}

bool story_next(const char** text, StorySymbol* symbol) {
    memset(symbol, 0, sizeof *symbol);
    if (**text == '|' || **text == 0) { return false; }
    if (**text != '<') {
        symbol->literal = *text;
        symbol->length = strcspn(*text, "<|");
        *text += symbol->length;
        return true;
    }
    const char* name = *text + 1;
    size_t length = strcspn(name, ".>"), all = strcspn(name, ">");
    bool known = all == length;
    for (int i = 0; i < 5 && !known; i++) {
        if (!story_same(name + length + 1, all - length - 1, STORY_PRONOUNS[i][0])) { continue; }
        memcpy(symbol->pronoun, STORY_PRONOUNS[i], sizeof symbol->pronoun);
        known = true;
    }
    int* rule = &symbol->rule;
    while (*rule < STORY_NUM_RULES && !story_same(name, length, STORY_RULES[*rule].name)) { ++*rule; }
    if (!known || *rule == STORY_NUM_RULES) { fatal("data/stories.c: unknown reference <%.*s>", (int)all, name); }
    *text = name + all + 1;
    return true;
}

// ---------------------------------------------------------------------------------------------------------------------
// making stories

// A story that is being told.
typedef struct {
    uint64_t seed, index, choices;
    int remembered[STORY_NUM_RULES]; // 0: not yet chosen, else the alternative + 1
    Buffer* out;
    double nll;
} Story;

static size_t story_choose(Story* s, int rule) {
    double u = rng_uniform(s->seed, RNG_STORIES, s->index * STORY_MAX_CHOICES + s->choices++);
    size_t i = 0, last = story_count(rule) - 1;
    while (i < last && (u -= story_probability(rule, i)) >= 0) { i++; }
    s->nll -= log(story_probability(rule, i));
    return i;
}

static void story_tell(Story* s, const char* text) {
    for (StorySymbol symbol; story_next(&text, &symbol);) {
        if (symbol.literal) {
            buffer_append(s->out, symbol.literal, symbol.length);
            continue;
        }
        int* known = &s->remembered[symbol.rule];
        size_t i = *known ? (size_t)*known - 1 : story_choose(s, symbol.rule);
        if (story_is_remembered(symbol.rule)) { *known = (int)i + 1; }
        if (symbol.pronoun[0]) {
            buffer_append(s->out, symbol.pronoun[i % 2], strlen(symbol.pronoun[i % 2]));
        } else {
            story_tell(s, story_alternative(symbol.rule, i));
        }
    }
}

void story_make(uint64_t seed, uint64_t index, Buffer* out, double* nll) {
    Story s;
    memset(&s, 0, sizeof s);
    s.seed = seed;
    s.index = index;
    s.out = out;
    story_tell(&s, STORY_RULES[0].text);
    *nll += s.nll;
}

// ---------------------------------------------------------------------------------------------------------------------
// what a short context costs

// Returns the number of places within all the texts of a rule: each letter counts once for every way to reach it.
static double story_places(int rule) {
    double places = 0;
    for (size_t i = 0; i < story_count(rule); i++) {
        const char* text = story_alternative(rule, i);
        for (StorySymbol symbol; story_next(&text, &symbol);) {
            places += symbol.literal ? (double)symbol.length : symbol.pronoun[0] ? 3 : story_places(symbol.rule);
        }
    }
    return places;
}

double story_state_entropy(void) {
    double h = log(story_places(0) + 1);
    for (int rule = 0; rule < STORY_NUM_RULES; rule++) {
        if (story_is_remembered(rule)) { h += log((double)story_count(rule)); }
    }
    return h;
}
